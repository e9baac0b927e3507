"""Read Amazon reviews of one category, as published in 2014: ``reviews_X_5.json`` and ``meta_X.json``."""

from __future__ import annotations

import ast
import re
from contextlib import suppress
from typing import TYPE_CHECKING

from fairsync.data.files import read_blocks
from fairsync.data.lines import read_json, split_lines
from fairsync.data.log import IdEncoder, LogBuilder
from fairsync.errors import InvalidInputError
from fairsync.extras import polars as pl

if TYPE_CHECKING:
    from collections.abc import Callable, Container
    from pathlib import Path

    from fairsync.data.log import Log

_FIELDS = {"reviewerID": "user", "asin": "item", "unixReviewTime": "time"}
_REVIEWS = "A line of the reviews is a JSON object with reviewerID, asin and unixReviewTime (reviews_Books_5.json)."
_NO_LITERAL = (ValueError, SyntaxError, MemoryError, RecursionError, TypeError, KeyError, AttributeError)
_META = "A line of the metadata is a Python literal with asin and categories (meta_Books.json)."
# The start of a line in the published files. Most lines describe items without reviews in the 5-core and are skipped,
# because parsing takes most of the time.
_OPENING = re.compile(r"\{'asin': '(\w+)', ")
# Quotes inside a literal in single quotes are escaped, so this matches the field and not a text that mentions it, as
# long as no literal in double quotes begins before.
_CATEGORIES = re.compile(r"[^\"]*?'categories': (\[\[.*?\]\])")


def read_amazon(reviews: Path, meta: Path, advance: Callable[[int], object] | None = None) -> Log:
    """Read reviews and the groups of their items.

    The group of an item is the leaf of its first category path, as in ComiRec and the paper: for ``[["Books",
    "Fiction"], ["Books", "Crime"]]`` it is ``Fiction``.

    Parameters
    ----------
    reviews
        JSON lines with ``reviewerID``, ``asin`` and ``unixReviewTime``, compressed or not.
    meta
        Lines with a Python literal that has ``asin`` and ``categories``, compressed or not. Literals are parsed and
        never executed. If an item has several lines, the last one is used.
    advance
        A callback that regularly gets the number of bytes read.

    Returns
    -------
    Log
        The reviews. Those of items without a line or a category in ``meta`` are bad rows.

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
    users, items, builder = IdEncoder(), IdEncoder(), LogBuilder(reviews, _REVIEWS)
    for block in read_blocks(reviews, advance):
        good = builder.check(read_json(block, list(_FIELDS)).rename(_FIELDS))
        builder.add(good.with_columns(users.encode(good["user"]), items.encode(good["item"])))
    item_ids = items.ids
    groups = _read_groups(meta, set(item_ids), advance)
    return builder.finish(users.ids, item_ids, pl.Series([groups.get(item) for item in item_ids], dtype=pl.String))


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
                    f"{path}:{number}: cannot be read ({error}). {_META} Download it again, or repair the line."
                ) from error
            match paths:
                case [[*_, str(leaf)], *_] if item in wanted and leaf:
                    groups[item] = leaf
    return groups


def _read_line(line: str, opening: re.Match[str] | None) -> tuple[str, object]:
    """Return the item and its category paths. Only a part of the line is parsed if possible."""
    if opening and (found := _CATEGORIES.match(line)):
        with suppress(*_NO_LITERAL):
            return opening[1], ast.literal_eval(found[1])
    read = ast.literal_eval(line)
    return read["asin"], read.get("categories")
