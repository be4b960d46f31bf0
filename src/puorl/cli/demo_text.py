"""The demo's words for the terminal, a chapter at a time."""

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from puorl.demo import words
from puorl.demo.study import TITLES, Data, Filtered, Plan, Trained
from puorl.pu.report_text import WIDTH, as_text


def begin(plan: Plan, console: Console) -> None:
    """What is asked, and what is smaller than in the paper."""
    _heading(f"puorl demo, seed {plan.setting.split_seed}", console)
    _paragraph(words.asked(plan), console)
    table = _table("scaled down", "demo", "paper")
    for row in words.scaled_down(plan):
        table.add_row(*row)
    console.print(table)


def data(made: Data, console: Console) -> None:
    """What was recorded."""
    _heading(f"1  data ({clock(made.seconds)})", console)
    for number, dataset in enumerate(made.sources):
        whose = "ours" if number == 0 else "another machine's"
        about = dataset.provenance
        _paragraph(f"{len(dataset):,} rows of {about.domain}, {about.behaviour}: {whose}", console)
    split = made.split
    _paragraph(
        f"mixed, labels hidden: {len(split.labelled):,} rows are known to be ours, "
        f"{len(split.unlabelled):,} are anybody's",
        console,
    )


def filtered(plan: Plan, made: Data, found: Filtered, console: Console) -> None:
    """The label-free report, and the truth beside it."""
    _heading(f"2  filter ({clock(found.seconds)})", console)
    _paragraph(words.filter_settings(found) + " Its report, made without labels:", console)
    console.print(as_text(found.report))
    _paragraph(words.row_counts(made, found) + ". With the truth beside it:", console)
    table = _table("", "estimate", "95 % interval", "truth", "truth is")
    for row in words.estimates(found):
        table.add_row(*row)
    console.print(table)
    note = words.report_note(plan, found)
    if note:
        _paragraph(note, console)


def trained(plan: Plan, found: Trained, console: Console) -> None:
    """The table at the end, and what it says."""
    _heading(f"3  training ({clock(found.seconds)})", console)
    for name, title in TITLES.items():
        _paragraph(f"{title}: {words.MEANINGS[name]}", console)
    for line in words.given_up(found):
        console.print(Text(f"given up: {line}", style="yellow"))
    table = _table("method", "rows", "truly ours", "score", "PU minus it")
    for row in words.results(found):
        style = "bold" if row[0] == TITLES["pu"] else ""
        table.add_row(*row, style=style)
    table.caption = (
        f"{words.SCORE} Means and 95 % intervals over {plan.num_seeds} policies, "
        f"{words.judged(plan)}."
    )
    table.caption_justify = "left"
    console.print(table)
    console.print(Text(words.conclusion(found), style="bold"), width=WIDTH)


def clock(seconds: float) -> str:
    """Minutes and seconds.

    >>> clock(187.4)
    '3:07'
    """
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"


def _heading(text: str, console: Console) -> None:
    console.print()
    console.print(Text(text, style="bold cyan"))


def _paragraph(text: str, console: Console) -> None:
    console.print(Text(text), width=WIDTH)


def _table(*names: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 2, 0, 0), pad_edge=False)
    for column, name in enumerate(names):
        table.add_column(name, justify="left" if column == 0 else "right", no_wrap=True)
    return table
