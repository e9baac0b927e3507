"""Names of new tables or collections that take the place of others: the name itself is an alias, or a link."""

import re
import secrets
from collections.abc import Iterable


def new_version(name: str, separator: str = "_") -> str:
    """Return a name that was never used before.

    Examples
    --------
    >>> versions_of("items", ["items", new_version("items")], kept=[]) != ["items"]
    True
    """
    return f"{name}{separator}{secrets.token_hex(4)}"


def versions_of(name: str, among: Iterable[str], kept: Iterable[str | None], separator: str = "_") -> list[str]:
    """Return those of some names that `new_version` has made of a name, except for those that are kept.

    Examples
    --------
    >>> versions_of("items", ["items_0a1b2c3d", "items_deadbeef", "items_old"], kept=["items_deadbeef"])
    ['items_0a1b2c3d']
    """
    spared = set(kept)
    made = re.compile(re.escape(name + separator) + "[0-9a-f]{8}")
    return [one for one in among if made.fullmatch(one) and one not in spared]
