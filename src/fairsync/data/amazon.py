"""Amazon reviews of one category, as published in 2014: ``reviews_X_5.json`` and ``meta_X.json``."""

from __future__ import annotations

import ast
import re
from contextlib import suppress
from typing import TYPE_CHECKING

import polars as pl

from fairsync.data.files import read_blocks
from fairsync.data.lines import read_json, split_lines
from fairsync.data.log import Gathering, Numbering
from fairsync.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Container
    from pathlib import Path

    from fairsync.data.log import Log

_FIELDS = {"reviewerID": "user", "asin": "item", "unixReviewTime": "time"}
_REVIEWS = "A line of the reviews is a JSON object with reviewerID, asin and unixReviewTime (reviews_Books_5.json)."
_NO_LITERAL = (ValueError, SyntaxError, MemoryError, RecursionError, TypeError, KeyError, AttributeError)
_META = "A line of the metadata is a Python literal with asin and categories (meta_Books.json)."
# A line begins so in the published files. Most lines describe items that nobody in the 5-core reviewed; they need not
# be parsed, which is what takes the time.
_OPENING = re.compile(r"\{'asin': '(\w+)', ")
# What stands inside a literal in single quotes has its quotes escaped, so this finds the field, not a text about it, as
# long as no literal in double quotes begins before.
_CATEGORIES = re.compile(r"[^\"]*?'categories': (\[\[.*?\]\])")


def read_amazon(reviews: Path, meta: Path, advance: Callable[[int], object] | None = None) -> Log:
    """Read reviews and the groups of their items.

    The group is the leaf of the first category path, the rule of ComiRec, which the paper follows: for ``[["Books",
    "Fiction"], ["Books", "Crime"]]`` it is ``Fiction``.

    Parameters
    ----------
    reviews
        JSON lines with ``reviewerID``, ``asin`` and ``unixReviewTime``; packed or not.
    meta
        A Python literal per line, with ``asin`` and ``categories``; packed or not. Literals are parsed, never
        run. If an item has several lines, the last one holds.
    advance
        Called with the number of bytes read, now and then.

    Returns
    -------
    Log
        Reviews of items that have no line or no category in ``meta`` are bad rows.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "reviews.json").write_text('{"reviewerID": "A", "asin": "B", "unixReviewTime": 1400000000}')
    >>> _ = (folder / "meta.json").write_text("{'asin': 'B', 'categories': [['Beauty', 'Soap']]}")
    >>> log = read_amazon(folder / "reviews.json", folder / "meta.json")
    >>> log.user_ids.to_list(), log.item_ids.to_list(), log.item_groups.to_list()
    (['A'], ['B'], ['Soap'])
    """
    users, items, gathering = Numbering(), Numbering(), Gathering(reviews, _REVIEWS)
    for block in read_blocks(reviews, advance):
        good = gathering.check(read_json(block, list(_FIELDS), reviews).rename(_FIELDS))
        gathering.keep(good.with_columns(users.encode(good["user"]), items.encode(good["item"])))
    item_ids = items.ids
    groups = _read_groups(meta, set(item_ids), advance)
    return gathering.finish(users.ids, item_ids, pl.Series([groups.get(item) for item in item_ids], dtype=pl.String))


def _read_groups(path: Path, wanted: Container[str], advance: Callable[[int], object] | None) -> dict[str, str]:
    """Return the group of each wanted item that has one."""
    groups: dict[str, str] = {}
    for block in read_blocks(path, advance):
        for number, line in enumerate(split_lines(block, path), block.first):
            opening = _OPENING.match(line)
            if not line.strip() or (opening and opening[1] not in wanted):
                continue
            try:
                item, paths = _read_line(line, opening)
            except _NO_LITERAL as error:
                raise InvalidInputError(
                    f"{path}:{number}: cannot be read ({error}). {_META} Fetch it again, or mend the line."
                ) from error
            match paths:
                case [[*_, str(leaf)], *_] if item in wanted and leaf:
                    groups[item] = leaf
    return groups


def _read_line(line: str, opening: re.Match[str] | None) -> tuple[str, object]:
    """Return item and category paths; a part of the line is parsed if it can be told, else the whole."""
    if opening and (found := _CATEGORIES.match(line)):
        with suppress(*_NO_LITERAL):
            return opening[1], ast.literal_eval(found[1])
    read = ast.literal_eval(line)
    return read["asin"], read.get("categories")
