"""Majority vote: one group for every item, if the rows of a source name several."""

from __future__ import annotations

from fairsync.extras import polars as pl

# Number of counts that are held before they are merged.
_MANY = 1 << 23


class MajorityVote:
    """Counts the groups that the rows of each item name, without keeping the rows.

    Examples
    --------
    >>> votes = MajorityVote()
    >>> votes.add(pl.DataFrame({"item": [1, 1, 2], "group": ["a", "b", "d"]}))
    >>> votes.add(pl.DataFrame({"item": [1, 2, 3], "group": ["b", "c", None]}))
    >>> votes.winners().sort("item").rows()
    [(1, 'b'), (2, 'd')]
    """

    def __init__(self) -> None:
        self._tables: list[pl.DataFrame] = []
        self._held, self._limit = 0, _MANY

    def add(self, rows: pl.DataFrame) -> None:
        """Count rows with an ``item`` and a ``group``. Rows without one of them have no vote."""
        self._tables.append(_add_up(rows.select("item", "group", votes=pl.lit(1, pl.Int64)).drop_nulls()))
        self._held += self._tables[-1].height
        if self._held > self._limit:
            self._tables = [_add_up(pl.concat(self._tables))]
            self._held = self._tables[0].height
            self._limit = max(_MANY, 2 * self._held)

    def winners(self) -> pl.DataFrame:
        """Return the most frequent group of each item. Ties go to the group that was named first."""
        ranked = _add_up(pl.concat(self._tables)).sort("votes", descending=True, maintain_order=True)
        return ranked.unique("item", keep="first", maintain_order=True).select("item", "group")


def _add_up(votes: pl.DataFrame) -> pl.DataFrame:
    """Return one row per item and group, in order of appearance."""
    return votes.group_by("item", "group", maintain_order=True).agg(pl.col("votes").sum())
