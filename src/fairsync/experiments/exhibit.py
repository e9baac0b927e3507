"""What an experiment shows: tables, figures and a few words, written so that people and programs can read them."""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import matplotlib as mpl

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from matplotlib.figure import Figure


@dataclass(frozen=True)
class ExhibitTable:
    """Rows under columns. Cells are texts as people read them; numbers keep their digits in the CSV.

    Attributes
    ----------
    columns : list of str
        Headings.
    rows : list of list
        Texts, numbers, or None where there is nothing to say.
    digits : int
        After the point, in Markdown and HTML; the CSV has them all.
    bold, starred : collection of (row, column)
        Cells to stand out, and cells with a star after the number; for people, not in the CSV.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str | int | float | None]]
    digits: int = 2
    bold: Collection[tuple[int, int]] = ()
    starred: Collection[tuple[int, int]] = ()

    def text(self, value: str | int | float | None) -> str:
        """Return a cell as people read it.

        Examples
        --------
        >>> table = ExhibitTable(["a"], [[1]], digits=2)
        >>> table.text(1234), table.text(0.5), table.text(None), table.text("x")
        ('1,234', '0.50', '–', 'x')
        """
        if value is None:
            return "–"
        if isinstance(value, str):
            return value
        return f"{value:,}" if isinstance(value, int) else f"{value:,.{self.digits}f}"

    def to_markdown(self) -> str:
        """Return a Markdown table; columns of numbers are flushed right."""
        right = [all(not isinstance(row[at], str) for row in self.rows) for at in range(len(self.columns))]
        lines = ["| " + " | ".join(self.columns) + " |"]
        lines.append("|" + "|".join("---:" if one else "---" for one in right) + "|")
        for at, row in enumerate(self.rows):
            lines.append("| " + " | ".join(self._marked(at, column, value) for column, value in enumerate(row)) + " |")
        return "\n".join(lines) + "\n"

    def _marked(self, row: int, column: int, value: str | int | float | None) -> str:
        text = f"**{self.text(value)}**" if (row, column) in self.bold else self.text(value)
        return text + "\\*" if (row, column) in self.starred else text

    def to_dict(self) -> dict[str, list[Any]]:
        """Return columns and rows as JSON can hold them, with all digits."""
        return {"columns": list(self.columns), "rows": [list(row) for row in self.rows]}

    def write_csv(self, path: Path) -> None:
        """Write all digits."""
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(self.columns)
            writer.writerows(self.rows)


@dataclass(frozen=True)
class Exhibit:
    """A table or figure of the paper, or one that it lacks, as this run shows it.

    Attributes
    ----------
    name : str
        For files and the command line, such as ``table-2``.
    title : str
        One line.
    words : str
        What was done and how to read it, in a paragraph.
    table : ExhibitTable
        The numbers, also of a figure.
    figure : matplotlib.figure.Figure or None
        A picture of them.
    more : mapping
        Further numbers, for programs: a CSV for each, under a name of its own.
    """

    name: str
    title: str
    words: str
    table: ExhibitTable
    figure: Figure | None = field(default=None, compare=False)
    more: Mapping[str, ExhibitTable] = field(default_factory=dict)

    def write(self, folder: Path) -> list[Path]:
        """Write CSV and Markdown, and SVG and PNG if there is a figure; return the files."""
        folder.mkdir(parents=True, exist_ok=True)
        files = [folder / f"{self.name}.csv", folder / f"{self.name}.md"]
        self.table.write_csv(files[0])
        picture = f"![{self.title}]({self.name}.svg)\n\n" if self.figure else ""
        text = f"## {self.title}\n\n{self.words}\n\n{picture}{self.table.to_markdown()}"
        files[1].write_text(text, encoding="utf-8")
        for name, table in self.more.items():
            files.append(folder / f"{self.name}-{name}.csv")
            table.write_csv(files[-1])
        if self.figure:
            for kind in ("svg", "png"):
                files.append(folder / f"{self.name}.{kind}")
                with mpl.rc_context({"svg.hashsalt": self.name}):  # or its ids would be drawn by chance
                    self.figure.savefig(files[-1], dpi=150, metadata={"Date": None} if kind == "svg" else None)
                self.figure.set_layout_engine("none")  # where things go is settled, and takes most of the time
        return files
