"""Read Taobao's log of user behaviour, as published: ``UserBehavior.csv``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairsync.data.files import read_blocks
from fairsync.data.lines import read_csv
from fairsync.data.log import LogBuilder
from fairsync.data.majority_vote import MajorityVote
from fairsync.errors import InvalidInputError
from fairsync.extras import polars as pl

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from fairsync.data.log import Log

BEHAVIOURS = ("pv", "buy", "cart", "fav")
"""Behaviours of the log: page view, purchase, add to cart, add to favourites."""

LARGEST_ID = 1 << 27
"""Ids are small integers that are used as array indices. Larger ids than this are refused."""

_NAMES = ("user", "item", "group", "behaviour", "time")
_ADVICE = "A line is user,item,category,behaviour,unix time, without a header (UserBehavior.csv)."


def read_taobao(path: Path, behaviours: Sequence[str] = ("pv",), advance: Callable[[int], object] | None = None) -> Log:
    r"""Read the log.

    Parameters
    ----------
    path
        File with lines ``user,item,category,behaviour,unix time``, compressed or not.
    behaviours
        Behaviours to use, some of :data:`BEHAVIOURS`. The paper follows ComiRec, which uses page views (``pv``).
    advance
        A callback that regularly gets the number of bytes read.

    Returns
    -------
    Log
        The interactions. The group of an item is its category; if rows differ, the most frequent one among the rows in
        use, and the first one of a tie.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "UserBehavior.csv"
    >>> _ = path.write_text("1,7,30,pv,1511658000\n1,8,30,buy,1511658001\n2,7,x,pv,1511658002\n")
    >>> log = read_taobao(path)
    >>> log.raw_rows, log.bad_rows, log.left_out, log.item_groups[7]
    (3, {'category is not a number': 1}, {'behaviour buy': 1}, '30')
    """
    if not behaviours or not set(behaviours) <= set(BEHAVIOURS):
        raise InvalidInputError(f"behaviours must be some of {', '.join(BEHAVIOURS)}, got {', '.join(behaviours)!r}.")
    builder = LogBuilder(path, _ADVICE)
    numbers = [pl.col(name).cast(pl.Int32, strict=False) for name in ("user", "item", "group")]
    checks = [
        *(
            (~number.is_between(0, LARGEST_ID - 1).fill_null(False), f"{name} is not a number")
            for number, name in zip(numbers, ("user", "item", "category"), strict=True)
        ),
        (~pl.col("behaviour").is_in(BEHAVIOURS).fill_null(False), "unknown behaviour"),
    ]
    taken = pl.col("behaviour").is_in(behaviours)
    votes, users = MajorityVote(), 0
    for block in read_blocks(path, advance):
        good = builder.check(read_csv(block, _NAMES, quoted=False), *checks).with_columns(*numbers)
        builder.leave_out("behaviour " + good.filter(~taken)["behaviour"])
        rows = good.filter(taken)
        builder.add(rows)
        votes.add(rows)
        users = max(users, _count(rows["user"]))
    chosen = votes.winners()
    items = _count(chosen["item"])
    groups = pl.Series([None], dtype=pl.Int32).new_from_index(0, items).scatter(chosen["item"], chosen["group"])
    return builder.finish(_ids(users), _ids(items), groups.cast(pl.String))


def _count(numbers: pl.Series) -> int:
    """Return the length of an array that has an entry for each of these numbers."""
    largest = numbers.max()
    return 0 if largest is None else int(largest) + 1  # type: ignore[arg-type]


def _ids(count: int) -> pl.Series:
    """Return the ids of all codes, which are the codes themselves."""
    return pl.int_range(0, count, dtype=pl.Int32, eager=True)
