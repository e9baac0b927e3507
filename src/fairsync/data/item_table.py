"""The table of items: the group of each item, and further attributes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from fairsync.catalog.series import typed
from fairsync.data.columns import ATTRIBUTE
from fairsync.data.lines import FAULT, LINE
from fairsync.data.majority_vote import MajorityVote
from fairsync.errors import InvalidInputError
from fairsync.extras import polars as pl

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from fairsync.data.columns import ColumnReader


class ItemTable:
    """Groups and attributes of items, from the rows of a table. Lines that cannot be read are counted and left out.

    If an item has several rows, its group is the most frequent one, and the first of a tie; of another attribute it has
    the first value, and of a list all labels.

    Parameters
    ----------
    reader
        Reads the table, with the columns ``item`` and ``group``, and further ones.
    lists
        The names of further columns whose text has several labels.
    separator
        Separator of these labels.
    strict
        Whether a line that cannot be read is an error.
    advance
        A callback that regularly gets the number of bytes read.

    Attributes
    ----------
    bad : collections.Counter
        {reason: number of lines} that cannot be read.
    first_bad : dict
        {reason: position} of the first such line.
    """

    def __init__(
        self,
        reader: ColumnReader,
        lists: Collection[str] = (),
        separator: str = "|",
        *,
        strict: bool = False,
        advance: Callable[[int], object] | None = None,
    ) -> None:
        self.bad: Counter[str] = Counter()
        self.first_bad: dict[str, str] = {}
        self._lists = {ATTRIBUTE + name for name in lists}
        votes, parts, rows = MajorityVote(), list[pl.DataFrame](), 0
        for table in reader.blocks(advance):
            rows += table.height
            for line, why in table.filter(pl.col(FAULT).is_not_null()).select(LINE, FAULT).iter_rows():
                if strict:
                    raise InvalidInputError(f"{reader.path}:{line}: cannot be read ({why}). Repair the line.")
                self.bad[why] += 1
                self.first_bad.setdefault(why, f"{reader.path.name}:{line}")
            good = table.filter(pl.col(FAULT).is_null(), pl.col("item").is_not_null())
            votes.add(good)
            parts.append(good.select("item", *(name for name in reader.names if name.startswith(ATTRIBUTE))))
        if 2 * self.bad.total() > rows:
            why = self.bad.most_common(1)[0][0]
            raise InvalidInputError(
                f"{reader.path}: {self.bad.total():,} of {rows:,} lines cannot be read, most of them for this reason:"
                f" {why} (first at {self.first_bad[why]}). Is it a table of items?"
            )
        self._groups = votes.winners()
        self._attributes = self._combine(pl.concat(parts, how="vertical_relaxed"), separator)

    def groups_of(self, items: pl.Series) -> pl.Series:
        """Return the group of each item, null if it has none."""
        return _look_up(items, self._groups)["group"]

    def attributes_of(self, items: pl.Series) -> dict[str, pl.Series]:
        """Return the further attributes by name, with a value for each item."""
        found = _look_up(items, self._attributes)
        return {name.removeprefix(ATTRIBUTE): found[name] for name in found.columns if name != "item"}

    def _combine(self, table: pl.DataFrame, separator: str) -> pl.DataFrame:
        """Return one row per item."""
        columns = []
        for name in table.columns[1:]:
            column = table[name]
            if isinstance(column.dtype, pl.Array):
                column = column.arr.to_list()
            if name in self._lists and not isinstance(column.dtype, pl.List):
                labels = column.cast(pl.String).str.split(separator)
                column = labels.list.eval(pl.element().str.strip_chars().replace("", None).drop_nulls())
            columns.append(column)
        table = table.select("item").with_columns(columns)
        if table["item"].n_unique() < table.height:
            several = [one.name for one in columns if isinstance(one.dtype, pl.List)]
            table = table.group_by("item", maintain_order=True).agg(
                pl.col(name).explode().drop_nulls().unique(maintain_order=True)
                if name in several
                else pl.col(name).drop_nulls().first()
                for name in table.columns[1:]
            )
        return table.with_columns(typed(one) for one in table.iter_columns() if one.name != "item" and _is_text(one))


def _look_up(items: pl.Series, table: pl.DataFrame) -> pl.DataFrame:
    return items.to_frame("item").join(table, on="item", how="left", maintain_order="left")


def _is_text(column: pl.Series) -> bool:
    return column.dtype == pl.String
