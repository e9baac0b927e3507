"""Log: the interactions of a source before preparation, with ids encoded as numbers and bad rows counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import numpy as np

from fairsync.catalog.catalog import GROUP
from fairsync.data.lines import FAULT, LINE
from fairsync.errors import InvalidInputError
from fairsync.extras import polars as pl

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

NO_GROUP = "item without a group"
"""The fault of a row whose item has no group: it could not have a floor."""


class Part(NamedTuple):
    """Consecutive rows of a log: codes of user and item, and the time."""

    users: NDArray[np.int32]
    items: NDArray[np.int32]
    times: NDArray[np.int64]

    def take(self, kept: NDArray[np.bool_]) -> Part:
        """Return the rows that a boolean mask selects."""
        return self if kept.all() else Part(self.users[kept], self.items[kept], self.times[kept])


@dataclass
class Log:
    """The interactions of a source.

    Attributes
    ----------
    parts : list of Part
        The usable rows in the order of the source, in parts, so that a long log is never copied as a whole.
    user_ids, item_ids : polars.Series
        The id of each code. Not every id needs to occur.
    item_groups : polars.Series
        The label of each item's group, by code; null if it has none.
    raw_rows : int
        Rows that were read.
    bad_rows : dict
        {reason: number of rows} that cannot be used.
    first_bad : dict
        {reason: position in the source} of the first such row.
    left_out : dict
        {reason: number of rows} that are valid but not wanted, such as other behaviours.
    has_clock : bool
        Whether times are clock times. If not, only their order is known.
    units_per_second : int
        Units of time per second.
    group_attribute : str
        The name of the attribute that is the group.
    attributes : dict
        {name: values by code} of further attributes of items: text, whole numbers, bools, floats, or lists.
    bad_items : dict
        {reason: number of lines} of the table of items that cannot be used.
    first_bad_items : dict
        {reason: position in the table} of the first such line.
    notes : list of str
        What was read otherwise than it is written, such as another encoding.
    unread : list of str
        Columns of a separate table of items that were not read: nobody has named them.
    """

    parts: list[Part]
    user_ids: pl.Series
    item_ids: pl.Series
    item_groups: pl.Series
    raw_rows: int
    bad_rows: dict[str, int] = field(default_factory=dict)
    first_bad: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    has_clock: bool = True
    units_per_second: int = 1
    group_attribute: str = GROUP
    attributes: dict[str, pl.Series] = field(default_factory=dict)
    bad_items: dict[str, int] = field(default_factory=dict)
    first_bad_items: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)


class IdEncoder:
    """Encodes ids as integers, in order of appearance.

    Examples
    --------
    >>> encoder = IdEncoder()
    >>> encoder.encode(pl.Series(["a", None, "a"])).to_list(), encoder.encode(pl.Series(["b", "a"])).to_list()
    ([0, None, 0], [1, 0])
    >>> encoder.ids.to_list()
    ['a', 'b']
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def encode(self, column: pl.Series) -> pl.Series:
        """Return the code of every id. Null stays null."""
        known = self._numbers
        distinct = column.drop_nulls().unique(maintain_order=True)
        numbers = [known.setdefault(word, len(known)) for word in distinct.to_list()]
        return column.replace_strict(distinct, pl.Series(numbers, dtype=pl.Int32), default=None, return_dtype=pl.Int32)

    @property
    def ids(self) -> pl.Series:
        """The ids, in order of their codes."""
        return pl.Series(list(self._numbers), dtype=pl.String)


class LogBuilder:
    """Builds a log from tables of rows, and counts the bad rows.

    Parameters
    ----------
    path
        Path of the source, for error messages.
    advice
        The expected format, for the error message if most rows are bad.
    """

    def __init__(self, path: Path, advice: str) -> None:
        self._path = path
        self._advice = advice
        self._parts: list[Part] = []
        self._raw_rows = 0
        self._bad: Counter[str] = Counter()
        self._first_bad: dict[str, str] = {}
        self._left_out: Counter[str] = Counter()

    def check(self, table: pl.DataFrame, *checks: tuple[pl.Expr, str]) -> pl.DataFrame:
        """Count the rows of a table, and return the valid ones.

        Parameters
        ----------
        table
            A table with the columns ``line``, ``fault``, ``user``, ``item`` and ``time``, which are null if missing,
            and possibly others.
        checks
            Further (condition, reason) pairs that make a row bad.

        Returns
        -------
        polars.DataFrame
            The valid rows, with integer times.
        """
        time = pl.col("time").cast(pl.Int64, strict=False)
        reason = first_fault(
            *((pl.col(name).is_null(), f"no {name}") for name in ("user", "item", "time")),
            (time.is_null(), "time is not a number"),
            (time < 0, "time before 1970"),
            *checks,
        )
        checked = table.with_columns(pl.coalesce(FAULT, reason).alias(FAULT), time)
        good = checked.filter(pl.col(FAULT).is_null())
        if good.height < checked.height:
            bad = checked.filter(pl.col(FAULT).is_not_null()).group_by(FAULT).agg(pl.len(), pl.col(LINE).min())
            for why, rows, line in bad.sort(LINE).iter_rows():
                self._bad[why] += rows
                self._first_bad.setdefault(why, f"{self._path.name}:{line}")
        self._raw_rows += table.height
        if not good.height and 0 < self._raw_rows == table.height:
            self._refuse()  # the first block of a wrong file is enough
        return good

    def add(self, rows: pl.DataFrame) -> None:
        """Add valid rows to the log. ``user`` and ``item`` are codes."""
        users, items, times = (rows[name].to_numpy() for name in ("user", "item", "time"))
        self._parts.append(Part(users.astype(np.int32, copy=False), items.astype(np.int32, copy=False), times))

    def leave_out(self, reasons: pl.Series) -> None:
        """Count valid rows that are not wanted, given a reason for each."""
        self._left_out.update(dict(reasons.value_counts().iter_rows()))

    def finish(
        self,
        user_ids: pl.Series,
        item_ids: pl.Series,
        item_groups: pl.Series,
        *,
        has_clock: bool = True,
        units_per_second: int = 1,
    ) -> Log:
        """Return the log without rows whose item has no group. Raises an error if most rows are bad."""
        grouped = item_groups.is_not_null().to_numpy()
        parts: list[Part] = []
        for part in self._parts:
            known = grouped[part.items]
            if not known.all():
                self._bad[NO_GROUP] += int((~known).sum())
                self._first_bad.setdefault(NO_GROUP, f"item {item_ids[int(part.items[known.argmin()])]}")
            parts.append(part.take(known))
        self._parts.clear()
        if 2 * self._bad.total() > self._raw_rows or not self._raw_rows:
            self._refuse()
        return Log(
            parts,
            user_ids,
            item_ids,
            item_groups,
            raw_rows=self._raw_rows,
            bad_rows=dict(sorted(self._bad.items())),
            first_bad=dict(sorted(self._first_bad.items())),
            left_out=dict(sorted(self._left_out.items())),
            has_clock=has_clock,
            units_per_second=units_per_second,
        )

    def _refuse(self) -> NoReturn:
        if not self._raw_rows:
            raise InvalidInputError(f"{self._path} has no rows. {self._advice}")
        why, _ = self._bad.most_common(1)[0]
        advice = "Do the two files belong together?" if why == NO_GROUP else self._advice
        raise InvalidInputError(
            f"{self._path}: {self._bad.total():,} of the first {self._raw_rows:,} rows cannot be used, most of them for"
            f" this reason: {why} (first at {self._first_bad[why]}). {advice}"
        )


def first_fault(*checks: tuple[pl.Expr, str]) -> pl.Expr:
    """Return an expression for the reason of the first condition that holds, or null.

    Examples
    --------
    >>> checks = (pl.col("n") < 0, "below 0"), (pl.col("n") > 9, "above 9")
    >>> pl.DataFrame({"n": [-1, 3, 12]}).select(first_fault(*checks)).to_series().to_list()
    ['below 0', None, 'above 9']
    """
    return pl.coalesce(*(pl.when(holds).then(pl.lit(reason)) for holds, reason in checks))
