"""Output of benchmarks: tables on the terminal and in Markdown, JSON, and the check of claims."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table as RichTable

OUT = Path("out/bench")


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


def make_screen() -> Console:
    """Return the terminal, or a console that is wide enough for the tables if there is none."""
    screen = Console(highlight=False)
    return screen if screen.is_terminal else Console(highlight=False, width=160)


def progress(screen: Console) -> Progress:
    """Return a transient progress bar with the name of the current task."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=screen, transient=True)


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
