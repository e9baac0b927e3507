"""What all benchmarks share: options, progress, tables on the terminal and in Markdown, JSON, and claims."""

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table as RichTable

OUT = Path("out/bench")

_Line = TypeVar("_Line")


@dataclass(frozen=True)
class Claim:
    """A limit for a measured value. NaN never meets it."""

    what: str
    value: float
    limit: float
    at_most: bool = True

    @property
    def met(self) -> bool:
        """Whether the value is within the limit."""
        return self.value <= self.limit if self.at_most else self.value >= self.limit

    def __str__(self) -> str:
        sign = "≤" if self.at_most else "≥"
        return f"{'met' if self.met else 'NOT met'}: {self.what}: {self.value:.4g} (claimed {sign} {self.limit:g})"


@dataclass(frozen=True)
class Table:
    """A table of texts."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    @classmethod
    def of(cls, title: str, lines: Sequence[_Line], columns: Mapping[str, Callable[[_Line], str]]) -> "Table":
        """Return a table with a row for each line: {heading: what the column says of a line}."""
        return cls(title, list(columns), [[text(line) for text in columns.values()] for line in lines])

    def to_rich(self) -> RichTable:
        """Return the table for the terminal."""
        table = RichTable(title=self.title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        for i, column in enumerate(self.columns):
            table.add_column(column, justify="right" if i else "left")
        for row in self.rows:
            table.add_row(*row)
        return table

    def to_markdown(self) -> str:
        """Return the table as Markdown."""
        lines = [self.columns, ["---"] + ["---:"] * (len(self.columns) - 1), *self.rows]
        body = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
        return f"{self.title}\n\n{body}\n"


def make_parser(doc: str | None, quick: str | None = None) -> argparse.ArgumentParser:
    """Return a parser with the options of all benchmarks.

    Parameters
    ----------
    doc
        The documentation of the benchmark, which its help page shows.
    quick
        What ``--quick`` does; None if there is no such option.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    if quick is not None:
        parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--out", type=Path, default=OUT, help=f"folder of the results (default: {OUT})")
    return parser


def make_screen() -> Console:
    """Return the terminal, or a console that is wide enough for the tables if there is none."""
    screen = Console(highlight=False)
    return screen if screen.is_terminal else Console(highlight=False, width=160)


def progress(screen: Console) -> Progress:
    """Return a transient progress bar with the name of the current task."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=screen, transient=True)


def shown(screen: Console, lines: Sequence[_Line], describe: Callable[[_Line], str]) -> Iterator[_Line]:
    """Yield lines one by one, and show the current one beside a progress bar."""
    with progress(screen) as bar:
        task = bar.add_task("", total=len(lines))
        for line in lines:
            bar.update(task, description=describe(line))
            yield line
            bar.advance(task)


def finish(
    name: str,
    tables: Sequence[Table],
    claims: Sequence[Claim],
    document: dict[str, Any],
    out: Path,
    screen: Console,
) -> int:
    """Print and write the results. Return the exit code, which is 1 if a claim is not met."""
    for table in tables:
        screen.print(table.to_rich())
    for claim in claims:
        screen.print(str(claim), style="green" if claim.met else "bold red", markup=False)
    out.mkdir(parents=True, exist_ok=True)
    document = {**document, "claims": [{**asdict(claim), "met": claim.met} for claim in claims]}
    (out / f"{name}.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    parts = [table.to_markdown() for table in tables]
    if claims:
        parts.append("\n".join(f"- {claim}" for claim in claims) + "\n")
    (out / f"{name}.md").write_text("\n".join(parts), encoding="utf-8")
    screen.print(f"Written: {out / name}.json, {out / name}.md", markup=False, soft_wrap=True)
    return 0 if all(claim.met for claim in claims) else 1
