"""A folder that a long command fills: it appears whole, and a killed run goes on where it was.

While the command works, all it has lies in ``.NAME.part`` beside the folder: what the run rests on,
its checkpoints and the half-built result. A kill leaves that there, and the next run finds it.
"""

import contextlib
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from puorl.core import formatting
from puorl.core.errors import ConfigError, DataError
from puorl.core.files import atomic_path, check_free, check_reachable, read_json, write_json

_BASIS = "basis.json"
_LOCK = "lock"
_DETAIL = "config"
"""Follows from the settings that have names; said only where none of these explains it."""

Basis = Mapping[str, str | int]
"""All that decides the result, by name: a run goes on only where nothing of it has changed."""


@dataclass(frozen=True)
class RunFolder:
    """Where a command keeps what it has done so far."""

    out: Path
    """The folder that is to appear."""
    work: Path
    """Where its parts lie until then."""
    force: bool
    """Whether what stands in the way may be replaced."""

    @property
    def result(self) -> Path:
        """The half-built folder; what is in it at the end becomes ``out``."""
        return self.work / "result"

    def checkpoint(self, name: str) -> Path:
        """The folder in which one stage keeps its state."""
        return self.work / "checkpoint" / name

    @property
    def has_progress(self) -> bool:
        """Whether any stage has kept a state."""
        return any(path.is_file() for path in (self.work / "checkpoint").rglob("*"))

    def begin(self, basis: Basis) -> bool:
        """Say what this run rests on; True when it goes on from where an earlier one stopped.

        Raises:
            ConfigError: An unfinished run rests on something else, and ``force`` is off.
        """
        basis = dict(basis)
        stored = self.work / _BASIS
        earlier = read_json(stored) if stored.exists() else basis
        if earlier != basis and self.has_progress and not self.force:
            raise ConfigError(
                f"{self.out}: an unfinished run with other settings is kept beside it "
                f"({_differences(earlier, basis)}); go on with those, choose another --out, or "
                "start afresh with --force"
            )
        if earlier != basis:
            shutil.rmtree(self.work / "checkpoint", ignore_errors=True)
        shutil.rmtree(self.result, ignore_errors=True)
        self.result.mkdir()
        write_json(stored, basis, force=True)
        return self.has_progress


@contextlib.contextmanager
def run_folder(out: Path, *, force: bool, marker: str) -> Iterator[RunFolder]:
    """Hold the folder for one run; what is in its ``result`` at the end becomes ``out``.

    When the block fails or is interrupted, checkpoints stay for the next run; where there are none
    yet, nothing stays.

    Args:
        out: The folder that is to appear.
        force: Replace what stands there, and drop an unfinished run with other settings.
        marker: File by which a folder of this kind is known, as for `check_free`.

    Raises:
        DataError: ``out`` may not be written, or another process is filling it.
    """
    check_free(out, force=force, marker=marker)
    if out.name in ("", ".."):
        out = out.resolve()  # a neighbour needs a name
    work = out.with_name(f".{out.name}.part")
    with locked(work / _LOCK, out):
        run = RunFolder(out, work, force)
        try:
            check_free(out, force=force, marker=marker)  # another run may just have finished
            yield run
            with atomic_path(out, force=force, marker=marker) as part:
                os.replace(run.result, part)
        except BaseException:
            if not run.has_progress:
                _discard(work)
            raise
        _discard(work)


@contextlib.contextmanager
def locked(path: Path, out: Path) -> Iterator[None]:
    """Hold a lock file while the block runs; the system lets it go even after a kill.

    The block may remove the file, or its folder: whoever waits for it then makes a new one.

    Args:
        path: The lock file; it and its folder are made if missing.
        out: What is locked, for the message.

    Raises:
        DataError: Another process holds it, or nothing can be made there.
    """
    check_reachable(out)
    while (handle := _try_lock(path, out)) is None:
        pass
    try:
        yield
    finally:
        os.close(handle)


def _try_lock(path: Path, out: Path) -> int | None:
    """The open lock file, or None where a finishing run has just taken it away."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(handle), os.stat(path)):
            return handle
    except BlockingIOError as error:
        os.close(handle)
        raise DataError(
            f"{out}: another run is filling this folder at the moment; wait for it, or choose "
            "another --out"
        ) from error
    except FileNotFoundError:
        pass
    os.close(handle)
    return None


def _discard(work: Path) -> None:
    # Out of the way in one step: the next run must never find a half-removed folder.
    doomed = work.with_name(f"{work.name}.{secrets.token_hex(4)}")
    os.replace(work, doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def _differences(earlier: Basis, now: Basis) -> str:
    """Without what follows from a setting that has a name, where one of these differs."""
    plain = [{k: v for k, v in basis.items() if k != _DETAIL} for basis in (earlier, now)]
    return formatting.describe_changes(*plain) or formatting.describe_changes(earlier, now)
