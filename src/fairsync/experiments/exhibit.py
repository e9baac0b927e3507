"""Exhibit: the table, figure and text of an experiment, written as CSV, Markdown, SVG and PNG."""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from matplotlib.figure import Figure


@dataclass(frozen=True)
class ExhibitTable:
    """A table that is rounded in Markdown and HTML, and has all digits in CSV.

    Attributes
    ----------
    columns : list of str
        Headings.
    rows : list of list
        Cells: texts, numbers, or None for an empty cell.
    digits : int
        Decimals in Markdown and HTML. The CSV has all digits.
    bold, starred : collection of (row, column)
        Bold cells, and cells with a star after the number. They are not marked in the CSV.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str | int | float | None]]
    digits: int = 2
    bold: Collection[tuple[int, int]] = ()
    starred: Collection[tuple[int, int]] = ()

    def text(self, value: str | int | float | None) -> str:
        """Return the text of a cell.

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
        """Return a Markdown table. Columns of numbers are aligned right."""
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
        """Return a JSON-serialisable dictionary of columns and rows, with all digits."""
        return {"columns": list(self.columns), "rows": [list(row) for row in self.rows]}

    def write_csv(self, path: Path) -> None:
        """Write a CSV file with all digits."""
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(self.columns)
            writer.writerows(self.rows)


@dataclass(frozen=True)
class Exhibit:
    """A table or figure of a run.

    Attributes
    ----------
    name : str
        Name in files and on the command line, such as ``table-2``.
    title : str
        Title in one line.
    words : str
        A paragraph on the method and how to read the numbers.
    table : ExhibitTable
        The numbers of the table or figure.
    figure : matplotlib.figure.Figure or None
        The figure.
    more : mapping
        {name: further table}, each written as a CSV file.
    """

    name: str
    title: str
    words: str
    table: ExhibitTable
    figure: Figure | None = field(default=None, compare=False)
    more: Mapping[str, ExhibitTable] = field(default_factory=dict)

    def to_markdown(self, folder: str = "") -> str:
        """Return it as Markdown, with a link to the figure in a folder such as ``exhibits/``."""
        picture = f"![{self.title}]({folder}{self.name}.svg)\n\n" if self.figure else ""
        return f"## {self.title}\n\n{self.words}\n\n{picture}{self.table.to_markdown()}"

    def write(self, folder: Path) -> list[Path]:
        """Write CSV and Markdown, and SVG and PNG if there is a figure. Return the files."""
        folder.mkdir(parents=True, exist_ok=True)
        files = [folder / f"{self.name}.csv", folder / f"{self.name}.md"]
        self.table.write_csv(files[0])
        files[1].write_text(self.to_markdown(), encoding="utf-8")
        for name, table in self.more.items():
            files.append(folder / f"{self.name}-{name}.csv")
            table.write_csv(files[-1])
        if self.figure:
            from matplotlib import rc_context  # here, because it takes long to import

            for kind in ("svg", "png"):
                files.append(folder / f"{self.name}.{kind}")
                with rc_context({"svg.hashsalt": self.name}):  # makes the ids reproducible
                    self.figure.savefig(files[-1], dpi=150, metadata={"Date": None} if kind == "svg" else None)
                self.figure.set_layout_engine("none")  # computing the layout again would take most of the time
        return files
