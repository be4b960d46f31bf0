"""Options and output that several commands share."""

import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich import box
from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from puorl.core.errors import ConfigError
from puorl.core.files import atomic_path
from puorl.core.formatting import parse_count
from puorl.core.resources import describe_size, free_memory
from puorl.data.dataset import Dataset
from puorl.data.formats import expand, format_of, load, readable
from puorl.data.validate import MATRICES

if TYPE_CHECKING:
    from puorl.core.tasks import Workers

_COMMANDING = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]"
)
"""Control characters but the line break, and those that turn the direction of text."""

_PART_OF_MEMORY = 8
"""Files that take this part of the free memory or more are read in partitions."""
_IN_PARTS = ("parquet", "csv", "hdf5", "minari")

# ------------------------------------------------------------------------------ values


def _spec(
    metavar: str,
    parse: Callable[[str], Any],
    kind: str,
    show: Callable[[Any], str] = str,
    **more: Any,
) -> Any:
    """Describe an option's value to the parser, with an error that names what is expected."""

    def read(words: list[str]) -> Any:
        try:
            return parse(words[0])
        except (ConfigError, ValueError) as error:
            raise ValueError(f"expected {kind}, got {words[0]!r}") from error

    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=read,
        is_instance=lambda value: True,
        str_from_instance=lambda value: [str(value) if value is None else show(value)],
        **more,
    )


def choice(*names: str) -> Any:
    """Describe an option that takes one of some names, which a table lists."""
    return _spec(f"{{{','.join(names)}}}", str, "a name", choices=names)


def unset(metavar: str | None = None, name: str | None = None) -> Any:
    """Describe an option whose default, None or off, is left out of the help."""
    return tyro.conf.arg(name=name, metavar=metavar, help_behavior_hint="")


_COUNT = _spec("COUNT", parse_count, "a whole number such as 1000000, 1e6 or 1M", "{:_}".format)
_INT = _spec("INT", int, "a whole number")
_FLOAT = _spec("FLOAT", float, "a number")
_UNSET = unset()

Flag = Annotated[bool, _UNSET]
"""Off unless it is given."""
Count = Annotated[int, _COUNT]
"""A whole number that may be written 1000000, 1_000_000, 1e6 or 1M."""
OptionalCount = Annotated[int | None, _COUNT, _UNSET]
Int = Annotated[int, _INT]
OptionalInt = Annotated[int | None, _INT, _UNSET]
Float = Annotated[float, _FLOAT]
OptionalFloat = Annotated[float | None, _FLOAT, _UNSET]
OptionalPath = Annotated[Path | None, unset("PATH")]
Paths = tyro.conf.Positional[Annotated[tuple[str, ...], unset("PATH...")]]
"""Files, globs and folders."""
RunPaths = tyro.conf.Positional[Annotated[tuple[str, ...], unset("DIR|FILE...")]]
"""Folders of other commands, and files."""
Settings = Annotated[
    tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]], unset("NAME=VALUE...", name="set")
]
"""Settings ``name=value``, several after one ``--set`` or after several."""
Labelled = Annotated[str | None, unset("EXPR|FILE")]
Condition = Annotated[str | None, unset("EXPR")]
Env = Annotated[str | None, unset("ENV")]
Names = Annotated[str | None, unset("NAMES")]
"""Names, comma-separated."""
_Name = Annotated[str | None, unset("NAME")]
_Format = Annotated[str | None, choice(*readable()), _UNSET]


def setting_words(given: Sequence[Sequence[str]]) -> list[str]:
    """Return the words of all ``--set``.

    Raises:
        ConfigError: Nothing follows one of them.
    """
    if () in given:
        raise ConfigError("--set: expected name=value, got nothing")
    return [word for words in given for word in words]


@dataclass(frozen=True, kw_only=True)
class Command:
    """The option that all commands share, and their output."""

    json: Flag = False
    """Print one JSON object on stdout and nothing else."""

    @property
    def console(self) -> Console:
        """Console for progress and notes: stderr where stdout is for JSON."""
        return make_console(json=self.json)

    def answer(self, content: Any, *lines: RenderableType) -> None:
        """Print the result: the content with ``--json``, else the lines."""
        if self.json:
            print_json(content)
            return
        for line in lines:
            # A path that is broken in the middle cannot be copied; a table fits the terminal.
            self.console.print(line, soft_wrap=isinstance(line, str | Text))

    @staticmethod
    def compute_synchronously() -> None:
        """Make jax wait for each computation on a CPU; call before the first one.

        With many computations in flight jax may hang for ever (jax-ml/jax issue 25861; seen once in
        the demo). Ours are long, so that waiting costs nothing.
        """
        import jax

        jax.config.update("jax_cpu_enable_async_dispatch", False)


@dataclass(frozen=True)
class DataOptions:
    """Where to find each field, if it has no usual name (NAMES: comma-separated)."""

    obs: Names = None
    """State: a key, or columns and patterns, e.g. 'obs_*' or angle,speed. Names keep the order in
    which they are given, matches of a pattern go by name and number: obs_2 before obs_10."""
    action: Names = None
    """Action, e.g. 'act_*', in the same order."""
    reward: _Name = None
    """Reward, or a formula such as '-abs(pressure - 5) - 0.01 * power'; may be absent."""
    next_obs: Names = None
    """Next state; without it the next row of the episode is used."""
    terminal: _Name = None
    """Flag: the task ended after this row."""
    timeout: _Name = None
    """Flag: the record was cut after this row although the task went on."""
    episode: _Name = None
    """Episode id: numbers or text."""
    time: _Name = None
    """Time stamp."""
    missing: Annotated[str | None, unset("HOW")] = None
    """Cells that are missing or no numbers: error (default), drop (leave out their rows and cut the
    episode there), or hold or hold:N (carry the last value on over at most 5 or N steps)."""
    gap: OptionalFloat = None
    """A time step over this many median steps cuts the episode; 1.5 by default."""
    decimal: Annotated[str | None, unset("SIGN")] = None
    """Sign before the fraction of a number in a text table: '.' (default) or ','."""
    encoding: _Name = None
    """Encoding of a text table, such as latin-1; UTF-8 by default."""
    time_format: Annotated[str | None, unset("FORMAT")] = None
    """Format of time stamps that are not ISO 8601, such as '%d.%m.%Y %H:%M:%S'."""
    time_zone: _Name = None
    """Zone of time stamps that name none, such as Europe/Berlin; UTC by default."""
    action_kind: Annotated[str | None, unset("KIND")] = None
    """Whether actions are amounts or codes: continuous, discrete, or discrete:CODE,CODE (all codes
    there are). By default one column of texts, or of few small whole numbers, is taken as codes,
    and a note says so."""
    format: _Format = None
    """Format, if the file's name does not say."""

    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments for `puorl.data.formats.load` and `read_labels`."""
        given = {name: value for name, value in vars(self).items() if value is not None}
        found = {name: _listed(v) if name in MATRICES else v for name, v in given.items()}
        if self.gap is not None:
            found["gap"] = float(self.gap)  # a text in settings that older versions stored
        if self.action_kind is not None:
            found["discrete_actions"] = _codes(self.action_kind)
            del found["action_kind"]
        return found

    def load(self, paths: Sequence[str]) -> Dataset:
        """Read all paths as one dataset."""
        return load(list(paths), **self.arguments())


@dataclass(frozen=True)
class EngineOptions:
    """Work on several machines."""

    engine: Annotated[str, choice("local", "ray")] = "local"
    """Where the parts of the work are done: here, or on Ray."""
    address: _Name = None
    """Address of a Ray cluster; without it, Ray is started here."""
    num_gpus: Float = 0.0
    """GPUs of each task of a fit, a training or a judgement on Ray."""

    def make(self) -> "Workers":
        """Return where tasks run."""
        from puorl.core.tasks import Workers

        number = getattr(self, "workers", None)
        return Workers(self.engine, number, self.address, self.num_gpus)  # pyright: ignore[reportArgumentType]

    def tasks(self) -> "Workers | None":
        """Return where tasks run that need no partitions; None for this process."""
        given = getattr(self, "workers", None), self.address, self.num_gpus
        if self.engine == "local" and given == (None, None, 0.0):
            return None  # the module of tasks is not needed
        made = self.make()
        if made.engine == "ray" and self.num_gpus:
            keep_off_gpus()
        return None if made.engine == "local" else made

    def started(self) -> contextlib.AbstractContextManager[Any]:
        """Start what tasks need for the whole command, such as Ray."""
        where = self.tasks()
        if where is None:
            return contextlib.nullcontext()
        from puorl.core.tasks import started

        return started(where)


@dataclass(frozen=True)
class ScaleOptions(EngineOptions):
    """Data larger than memory: read in partitions, on several cores or machines."""

    stream: Flag = False
    """Read in partitions, also if the files take less than an eighth of the free memory."""
    sample: Count = 1_000_000
    """Unlabelled rows to fit on, where data is read in partitions."""
    workers: OptionalInt = None
    """Processes that read and score partitions; one a core by default."""

    def reason(self, paths: Sequence[str]) -> str | None:
        """Say why data is read in partitions, empty if it was asked for; None if it is not."""
        if self.stream or self.engine != "local" or any("://" in path for path in paths):
            return ""
        free, size = free_memory(), 0
        for path in expand(list(paths), ids=True):
            inner = path.rglob("*") if path.is_dir() else [path]
            size += sum(each.stat().st_size for each in inner if each.is_file())
            found = format_of(path)
            if found is None or found.name not in _IN_PARTS or path.suffix in (".gz", ".zst"):
                return None
        if free is None or _PART_OF_MEMORY * size < free:
            return None
        return (
            f"the files take {describe_size(size)}, more than an eighth of the free memory "
            f"({describe_size(free)}): they are read in partitions"
        )

    def open(self, paths: Sequence[str], reason: str, console: Console, **names: Any) -> Any:
        """Open files lazily, and say why."""
        from puorl.data import lazy

        workers = replace(self.make(), num_gpus=0.0)
        opened = lazy.open(list(paths), progress=True, workers=workers, **names)
        console.print(f"{reason or 'read in partitions, as asked'}: {opened!r}")
        return opened


def _listed(names: str | None) -> str | list[str] | None:
    """Split several names; one stays text: a key of an array file, or one pattern."""
    if names is None or "," not in names:
        return names
    return [name.strip() for name in names.split(",") if name.strip()]


def _codes(text: str) -> bool | list[str]:
    kind, _, codes = text.partition(":")
    if kind not in ("continuous", "discrete") or (codes and kind == "continuous"):
        raise ConfigError(
            f"--action-kind: expected continuous, discrete or discrete:CODE,CODE, got {text!r}"
        )
    return [code.strip() for code in codes.split(",")] if codes else kind == "discrete"


# ------------------------------------------------------------------------------ output


class SafeConsole(Console):
    """A console on which names of files and columns cannot command the terminal."""

    def render(self, *arguments: Any, **options: Any) -> Iterable[Segment]:
        """Yield the pieces to print, with control characters as Python writes them."""
        for piece in super().render(*arguments, **options):
            text = piece.text if piece.control else _COMMANDING.sub(_escaped, piece.text)
            yield piece if text == piece.text else piece._replace(text=text)


def _escaped(found: re.Match[str]) -> str:
    return repr(found[0])[1:-1]


def make_console(*, json: bool = False) -> Console:
    """Make a console that prints plain lines, on stderr where stdout is for JSON."""
    return SafeConsole(stderr=json, highlight=False, markup=False, soft_wrap=True)


def count_policies(number: int) -> str:
    """Write a number of policies."""
    return f"{number} policies" if number > 1 else "1 policy"


def note_lines(notes: Iterable[str]) -> list[Text]:
    """Return notes, a line each, to print."""
    return [Text(f"note: {note}", style="dim") for note in notes]


def show_notes(notes: Iterable[str], console: Console) -> None:
    """Print notes, a line each."""
    for line in note_lines(notes):
        console.print(line)


def facts_table(facts: Iterable[tuple[str, str | Text]], width: int | None = None) -> Table:
    """Make a table of names and texts, without a head."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True, min_width=width)
    table.add_column(overflow="fold")
    for name, text in facts:
        table.add_row(Text(name), Text(text) if isinstance(text, str) else text)
    return table


def columns_table(head: Sequence[str], rows: Iterable[Sequence[str]], *, bold: str = "") -> Table:
    """Make a table of a name and numbers in each row; the row of the name ``bold`` stands out."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 2, 0, 0), pad_edge=False)
    for number, name in enumerate(head):
        table.add_column(name, justify="right" if number else "left", no_wrap=number > 0)
    for row in rows:
        table.add_row(*map(Text, row), style="bold" if row[0] == bold else "")
    return table


def aligned(cells: Sequence[Sequence[str]], *, left: int) -> Iterator[Text]:
    """Yield rows in columns, the first row as the head; the last ``left`` columns are texts.

    Paths come last: they may be long, and one that is broken in the middle cannot be copied.
    """
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for number, row in enumerate(cells):
        pairs = enumerate(zip(row, widths, strict=True))
        words = [v.rjust(w) if i < len(row) - left else v.ljust(w) for i, (v, w) in pairs]
        yield Text("  ".join(words).rstrip(), style="" if number else "bold")


def write_page(path: Path, html: str, *, force: bool) -> None:
    """Write a page or another text at once."""
    with atomic_path(path, force=force) as part:
        part.write_text(html, encoding="utf-8")


def print_json(content: Any) -> None:
    """Print one JSON object on stdout."""
    sys.stdout.write(json.dumps(content, indent=2, allow_nan=False) + "\n")


def keep_off_gpus() -> None:
    """Compute on the CPU: GPUs are for the tasks that are started elsewhere."""
    import jax

    jax.config.update("jax_platforms", "cpu")
