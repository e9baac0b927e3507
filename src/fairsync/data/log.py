"""Interactions as they come from a source: ids made numbers, bad rows counted, nothing prepared yet."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import numpy as np
import polars as pl

from fairsync.data.lines import FAULT, LINE
from fairsync.errors import InvalidInputError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

NO_GROUP = "item without a group"
"""Why a row is bad whose item has no group: no floor could be promised to it."""


class Part(NamedTuple):
    """Some rows of a log, in order: numbers of user and item, and the time."""

    users: NDArray[np.int32]
    items: NDArray[np.int32]
    times: NDArray[np.int64]

    def take(self, kept: NDArray[np.bool_]) -> Part:
        """Return the rows that are marked."""
        return self if kept.all() else Part(self.users[kept], self.items[kept], self.times[kept])


@dataclass
class Log:
    """What was read from a source.

    Attributes
    ----------
    parts : list of Part
        The rows that can be used, in the order of the source, in pieces: a long log is never copied whole.
    user_ids, item_ids : polars.Series
        The ids, at the place of the number that stands for them. Not every one needs to occur.
    item_groups : polars.Series
        The label of each item's group, at the place of the item; null where it has none.
    raw_rows : int
        Rows that were read.
    bad_rows : dict
        Why rows cannot be used, and how many for each reason.
    first_bad : dict
        Where the first row of each reason stands.
    left_out : dict
        Rows that are well but not wanted, such as those of other behaviours, by reason.
    has_clock : bool
        Whether times are of a clock. If not, they only tell the order.
    ticks : int
        Units of time in a second.
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
    ticks: int = 1


class Numbering:
    """Numbers for ids, in order of appearance.

    Examples
    --------
    >>> numbering = Numbering()
    >>> numbering.encode(pl.Series(["a", None, "a"])).to_list(), numbering.encode(pl.Series(["b", "a"])).to_list()
    ([0, None, 0], [1, 0])
    >>> numbering.ids.to_list()
    ['a', 'b']
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def encode(self, column: pl.Series) -> pl.Series:
        """Return the number of every id; null stays null."""
        known = self._numbers
        distinct = column.drop_nulls().unique(maintain_order=True)
        numbers = [known.setdefault(word, len(known)) for word in distinct.to_list()]
        return column.replace_strict(distinct, pl.Series(numbers, dtype=pl.Int32), default=None, return_dtype=pl.Int32)

    @property
    def ids(self) -> pl.Series:
        """The ids, in order of their numbers."""
        return pl.Series(list(self._numbers), dtype=pl.String)


class Gathering:
    """Takes rows in, table by table, counts the bad ones, and makes a log of the others.

    Parameters
    ----------
    path
        The file they come from, for messages.
    advice
        What to do if most rows are bad: what the file should look like.
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
        """Count the rows of a table, and return the good ones.

        Parameters
        ----------
        table
            ``line``, ``fault``, ``user``, ``item`` and ``time``, each null where the source has none, and what else the
            source has.
        checks
            What else makes a row bad, and the reason to tell.

        Returns
        -------
        polars.DataFrame
            The good rows; their times are whole numbers.
        """
        time = pl.col("time").cast(pl.Int64, strict=False)
        reason = first_fault(
            *((pl.col(name).is_null(), f"no {name}") for name in ("user", "item", "time")),
            (time.is_null(), "time is not a number"),
            (time < 0, "time before 1970"),
            *checks,
        )
        judged = table.with_columns(pl.coalesce(FAULT, reason).alias(FAULT), time)
        good = judged.filter(pl.col(FAULT).is_null())
        if good.height < judged.height:
            bad = judged.filter(pl.col(FAULT).is_not_null()).group_by(FAULT).agg(pl.len(), pl.col(LINE).min())
            for why, rows, line in bad.sort(LINE).iter_rows():
                self._bad[why] += rows
                self._first_bad.setdefault(why, f"{self._path.name}:{line}")
        self._raw_rows += table.height
        if not good.height and 0 < self._raw_rows == table.height:
            self._refuse()  # a wrong file need not be read to its end
        return good

    def keep(self, rows: pl.DataFrame) -> None:
        """Add good rows to the log: ``user`` and ``item`` are numbers now."""
        users, items, times = (rows[name].to_numpy() for name in ("user", "item", "time"))
        self._parts.append(Part(users.astype(np.int32, copy=False), items.astype(np.int32, copy=False), times))

    def leave_out(self, reasons: pl.Series) -> None:
        """Count good rows that are not wanted, one reason each."""
        self._left_out.update(dict(reasons.value_counts().iter_rows()))

    def finish(
        self,
        user_ids: pl.Series,
        item_ids: pl.Series,
        item_groups: pl.Series,
        *,
        has_clock: bool = True,
        ticks: int = 1,
    ) -> Log:
        """Return the log, without rows whose item has no group; raises if most rows are bad."""
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
            ticks=ticks,
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
    """Return the reason of the first check that holds, or null.

    Examples
    --------
    >>> checks = (pl.col("n") < 0, "below 0"), (pl.col("n") > 9, "above 9")
    >>> pl.DataFrame({"n": [-1, 3, 12]}).select(first_fault(*checks)).to_series().to_list()
    ['below 0', None, 'above 9']
    """
    return pl.coalesce(*(pl.when(holds).then(pl.lit(reason)) for holds, reason in checks))
