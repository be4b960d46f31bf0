"""Run folders that a long command fills and can resume, checkpoints, and the schema of results.

While a command runs, the hidden folder ``.NAME.part`` next to its result holds its basis, its
checkpoints and the unfinished result. After a kill, the same command resumes from there.
The schema of `puorl filter` stands here, so that reading it needs no jax.
"""

import contextlib
import contextvars
import dataclasses
import math
import os
import secrets
import shutil
import tempfile
import time
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from puorl.core import formatting, hashing
from puorl.core.errors import GOES_ON, ConfigError, DataError, PuorlError, machine_fault
from puorl.core.files import atomic_path, check_free, check_reachable, lock, read_json, write_json

T = TypeVar("T")
Tree = TypeVar("Tree")
_OTHER_STATE = "remove it to go on from the one before, or from the beginning"
_BASIS = "basis.json"
_LOCK = "lock"
_DERIVED = "config"
"""Follows from settings with names of their own; named only where none of these differs."""

_HELD: contextvars.ContextVar[frozenset[Path]] = contextvars.ContextVar(
    "locks held", default=frozenset()
)
Basis = Mapping[str, str | int]
"""Everything that decides the result, by name: a run resumes only where none of it has changed."""


# ------------------------------------------------------------------------- resumable folder


@dataclass(frozen=True)
class RunFolder:
    """The places of a command that has not finished."""

    out: Path
    """The final folder."""
    work: Path
    """The hidden folder that holds everything until then."""
    force: bool
    """Whether existing results may be replaced."""

    @property
    def result(self) -> Path:
        """The unfinished folder; its content becomes ``out``."""
        return self.work / "result"

    def checkpoint(self, name: str) -> Path:
        """Return the folder in which one stage stores its state."""
        return self.work / "checkpoint" / name

    @property
    def has_progress(self) -> bool:
        """Whether any stage has stored a state."""
        return any(path.is_file() for path in (self.work / "checkpoint").rglob("*"))

    def begin(self, basis: Basis) -> bool:
        """Store the basis of this run; return whether an earlier run is resumed."""
        basis = dict(basis)
        stored = self.work / _BASIS
        earlier = (
            read_json(stored, repair="start afresh with --force") if stored.exists() else basis
        )
        if earlier != basis and self.has_progress and not self.force:
            raise ConfigError(
                f"{self.out}: an unfinished run with other settings is kept next to it "
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
    """Lock a folder for one run; the content of its ``result`` becomes ``out`` at the end.

    When the block fails or is interrupted, checkpoints stay for the next run; without checkpoints
    nothing stays.

    Args:
        out: The final folder.
        force: Replace an existing folder, and drop an unfinished run with other settings.
        marker: File that identifies a folder of this kind, as for `check_free`.
    """
    check_free(out, force=force, marker=marker)
    if out.name in ("", ".."):
        out = out.resolve()  # the hidden folder next to it needs a name
    work = out.with_name(f".{out.name}.part")
    with exclusive(work / _LOCK, out):
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
def exclusive(path: Path, out: Path) -> Iterator[None]:
    """Hold the lock file ``path`` of the folder ``out`` while the block runs.

    Raises:
        DataError: Another process or thread holds it, nothing can be written there, or a link is
            in the hidden folder of the lock file: what it leads to would be filled or emptied.
    """
    check_reachable(out)
    work = path.parent
    is_hidden = work.suffix in (".part", ".parts")
    _refuse_links([work] if is_hidden else [])
    with lock(path) as is_ours:
        if not is_ours:
            raise DataError(
                f"{out}: another run is filling this folder at the moment; wait for it, or choose "
                "another --out"
            )
        _refuse_links(work.rglob("*") if is_hidden else [])  # nobody else changes it now
        yield


def _refuse_links(held: Iterable[Path]) -> None:
    if link := next((each for each in held if each.is_symlink()), None):
        raise DataError(
            f"{link}: expected what puorl wrote or nothing, found a link; remove it, or choose "
            "another --out"
        )


@contextlib.contextmanager
def exclusive_beside(out: Path) -> Iterator[None]:
    """Hold a lock for a folder that need not exist, in a hidden file next to it.

    A block inside another that holds it, of the same thread, goes on.
    """
    own = out.resolve()
    path = own.with_name(f".{own.name}.lock")
    if path in _HELD.get():
        yield
        return
    with exclusive(path, out):
        token = _HELD.set(_HELD.get() | {path})
        try:
            yield
        finally:
            _HELD.reset(token)
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def partition_folder(out: Path | None, basis: Basis) -> Iterator[Path]:
    """Yield a folder for the results of partitions, next to the final result.

    It is removed at the end. After a kill it stays, and the same command finds it; a command with
    another basis makes another one.
    """
    if out is None:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)
        return
    folder = out.with_name(f".{out.name}.{hashing.of_settings(basis)[:12]}.parts")
    with exclusive(folder / "lock", out):
        yield folder
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def announce_resume(has_progress: Callable[[], bool]) -> Iterator[None]:
    """Add to an interruption, or to an error of the system, that the same command goes on."""
    try:
        yield
    except KeyboardInterrupt:
        if has_progress():
            raise KeyboardInterrupt("the same command goes on from there") from None
        raise KeyboardInterrupt("nothing is stored yet: the same command begins anew") from None
    except Exception as error:
        # A full disk, for example: what is done stays.
        by_system = isinstance(error, OSError) or isinstance(error.__cause__, OSError)
        if (by_system or machine_fault(error)) and has_progress():
            raise DataError(f"{error}; {GOES_ON}") from error
        raise


def _discard(work: Path) -> None:
    # Renamed first: the next run must never find a half-removed folder.
    doomed = work.with_name(f"{work.name}.{secrets.token_hex(4)}")
    os.replace(work, doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def _differences(earlier: Basis, now: Basis) -> str:
    plain = [{k: v for k, v in basis.items() if k != _DERIVED} for basis in (earlier, now)]
    return formatting.describe_changes(*plain) or formatting.describe_changes(earlier, now)


# ------------------------------------------------------------------------- checkpoints


class Checkpoint:
    """States of the stages of a job, one file each; without a folder nothing is stored."""

    def __init__(
        self, folder: str | os.PathLike[str] | None, identity: str = "", *, seconds: float = 5.0
    ) -> None:
        """Set the folder and the identity of the job.

        Args:
            folder: Folder of the files, or None.
            identity: Hash of all inputs of the job; a state of another job is refused.
            seconds: Shortest time between two writes of a stage.
        """
        self._folder = None if folder is None else Path(folder).absolute()
        self._identity = identity
        self._seconds = seconds
        self._last = time.monotonic()
        self._prefix = ""
        self.notes: dict[str, str] = {}
        """Of the state that was restored last; with its hash, unless version 0.1 wrote it."""

    def named(self, job: str) -> "Checkpoint":
        """Return a checkpoint for a part of the job, with a prefix for the names of its stages."""
        made = Checkpoint(self._folder, self._identity, seconds=self._seconds)
        made._prefix = f"{self._prefix}{job}-"
        return made

    def restore(self, stage: str, fresh: Tree) -> tuple[Tree, int]:
        """Return the stored state and the number of steps done, or the fresh state and 0."""
        path = None if self._folder is None else self._folder / f"{self._prefix}{stage}.safetensors"
        if path is None or not path.exists():
            return fresh, 0
        import jax  # not at the top: other readers of run folders need none

        leaves, shape = jax.tree.flatten(fresh)
        try:
            with safe_open(path, framework="numpy") as file:
                metadata = file.metadata() or {}
                stored = {name: file.get_tensor(name) for name in file.keys()}
            found = _state_hash(stored, metadata)
            hashing.check(path, metadata.get(hashing.HASH), found, repair=_OTHER_STATE)
            if metadata.get("identity") != self._identity:
                raise DataError(
                    f"{path}: expected a checkpoint of this job, got one with other data or "
                    "settings; remove it, or name another folder"
                )
            done = int(metadata["done"])
            pairs = [(leaf, stored[str(i)]) for i, leaf in enumerate(leaves)]
            for place, (leaf, array) in enumerate(pairs):
                if (array.dtype, array.shape) != ((wanted := _data(leaf)).dtype, wanted.shape):
                    raise ValueError(f"array {place} is {array.dtype} {array.shape}")
        except (OSError, KeyError, ValueError, SafetensorError) as error:
            message = f"{path}: expected a whole checkpoint, got: {error}; {_OTHER_STATE}"
            raise DataError(message) from error
        self.notes = metadata
        return jax.tree.unflatten(shape, [_like(leaf, array) for leaf, array in pairs]), done

    def store(self, stage: str, state: Any, done: int, *, now: bool = False, **notes: str) -> None:
        """Write the state if ``seconds`` have passed since the last write, or if ``now`` is set."""
        if self._folder is None or not (now or time.monotonic() - self._last > self._seconds):
            return
        import jax

        arrays = {
            str(i): np.asarray(_data(leaf), order="C")
            for i, leaf in enumerate(jax.tree.leaves(state))
        }
        metadata = {**notes, "identity": self._identity, "done": str(done)}
        metadata[hashing.HASH] = _state_hash(arrays, metadata)
        with atomic_path(self._folder / f"{self._prefix}{stage}.safetensors", force=True) as part:
            save_file(arrays, part, metadata=metadata)
        self._last = time.monotonic()


def _state_hash(arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> str:
    noted = {name: text for name, text in metadata.items() if name != hashing.HASH}
    return hashing.of_settings(noted | {"arrays": hashing.of_arrays(arrays)})


def _data(leaf: Any) -> Any:
    import jax
    import jax.numpy as jnp

    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if is_key else leaf


def _like(leaf: Any, array: np.ndarray) -> Any:
    if isinstance(leaf, np.ndarray):
        return array
    import jax
    import jax.numpy as jnp

    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jnp.asarray(array), impl=jax.random.key_impl(leaf))
    return jnp.asarray(array)


# ------------------------------------------------------------- the folder of `puorl filter`

KEEP_LIST, MODEL, SETTINGS = "keep.csv", "model", "settings.json"
REPORT, REPORT_PAGE, UNITS = "report.json", "report.html", "units.csv"
KEPT_PARTS = "kept"
"""Folder of kept rows, where data was read in partitions."""
FILTER_MARKER = "model/filter.json"
"""Identifies a folder of `puorl filter`."""
WEIGHT = "weight"
"""Column of the kept rows in the mode ``soft``."""


@dataclass(frozen=True)
class KeptRows:
    """The file of kept rows."""

    file: str
    num_rows: int
    fingerprint: str

    def __post_init__(self) -> None:
        """Refuse a file outside the folder."""
        if self.file in ("", ".", "..") or Path(self.file).name != self.file:
            raise DataError(f"kept.file: expected a name inside the folder, got {self.file!r}")


@dataclass(frozen=True)
class FilterSettings:
    """Content of ``settings.json``."""

    arguments: dict[str, Any]
    """As given on the command line, by name."""
    versions: dict[str, str]
    fingerprints: dict[str, str]
    kept: KeptRows
    returns: tuple[float, float] | None = None
    """Smallest and largest return of complete episodes of all rows, kept or not; None if unknown.

    Kept rows alone do not determine it: most episodes lack some rows.
    """
    keep_list: str | None = None
    """Hash of the bytes of ``keep.csv``; None in folders of version 0.1, or where it is absent."""
    sample: dict[str, Any] | None = None
    """Rows that the filter was fitted on, where these were not all."""
    files: dict[str, str] = dataclasses.field(default_factory=dict)
    """Hashes of the bytes of files that no command reads: the report's page, the list of units."""
    puorl_filter_run: int = 1
    """Version of this schema."""

    def __post_init__(self) -> None:
        """Check the one argument that is a list."""
        paths = self.arguments.get("paths")
        if not (isinstance(paths, list) and all(isinstance(path, str) for path in paths)):
            raise DataError(f"arguments.paths: expected a list of paths, got {paths!r}")

    @property
    def paths(self) -> list[str]:
        """The paths that were filtered."""
        return self.arguments["paths"]

    @property
    def is_soft(self) -> bool:
        """Whether the kept rows are all rows, with a column of weights."""
        return self.arguments.get("mode") == "soft"


def check_keep_list(path: Path) -> None:
    """Compare a keep-list in a folder of `puorl filter` with the hash in ``settings.json``.

    Lists elsewhere, or of another name, have no hash and pass: a person may write or change them.
    """
    if path.name == KEEP_LIST and (path.parent / FILTER_MARKER).is_file():
        stored = read_as(FilterSettings, path.parent / SETTINGS).keep_list
        repair = "filter again, or, if you changed it yourself, give it another name"
        hashing.check(path, stored, hashing.of_bytes(path), repair=repair)


# ------------------------------------------------------------------------------- reading


def read_as(kind: type[T], path: Path) -> T:
    """Read a JSON file as the dataclass of its schema."""
    return decode(kind, read_json(path), path)


def decode(kind: type[T], content: Any, path: Path) -> T:
    """Build a dataclass from JSON; null is NaN for a number, and unknown names are ignored."""
    try:
        return _decode(kind, content, "content")
    except (PuorlError, OverflowError, RecursionError) as error:
        raise DataError(
            f"{path}: expected what puorl wrote, got: {error}; the file is damaged or of "
            "another version, so make it again"
        ) from error


def _decode(kind: Any, value: Any, place: str) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return None if value is None else _decode(inner[0], value, place)
    if dataclasses.is_dataclass(kind) and isinstance(value, Mapping):
        hints = get_type_hints(kind)
        given = [each.name for each in dataclasses.fields(kind) if each.name in value]
        try:
            return kind(**{n: _decode(hints[n], value[n], f"{place}.{n}") for n in given})  # type: ignore
        except TypeError as error:  # a field without default is missing
            raise DataError(f"{place}: {error}") from error
    if origin is tuple and isinstance(value, list):
        kinds = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        if len(kinds) == len(value):
            pairs = enumerate(zip(kinds, value, strict=True))
            return tuple(_decode(each, v, f"{place}[{i}]") for i, (each, v) in pairs)
    if origin is dict and isinstance(value, Mapping):
        return {name: _decode(inner[1], v, f"{place}.{name}") for name, v in value.items()}
    if kind is float and value is None:
        return math.nan
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if kind is Any or type(value) is kind or (origin is Literal and value in inner):
        return value
    name = getattr(kind, "__name__", kind)
    expected = "an object" if dataclasses.is_dataclass(kind) else name
    raise DataError(f"{place}: expected {expected}, got {str(value)[:60]!r}")
