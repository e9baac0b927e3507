"""The labels of the groups that a ledger counts, saved beside the counts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from fairsync.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairsync.catalog.groups import Label
    from fairsync.ledger.base import Ledger, Saved

_NAME = "labels"


def load_labels(ledger: Saved) -> list[Label] | None:
    """Return the labels of the groups that a ledger counts, in the order of the counts; None if they are not known."""
    saved = ledger.load(_NAME)
    return None if saved is None else list(json.loads(saved))


def check_labels(ledger: Ledger, labels: Sequence[Label]) -> None:
    """Refuse a ledger that counts other groups.

    Parameters
    ----------
    ledger
        The ledger.
    labels
        Labels of the catalog, in the order of their codes. Groups that were added follow the others.

    Examples
    --------
    >>> from fairsync.ledger import MemoryLedger
    >>> ledger = MemoryLedger(2)
    >>> save_labels(ledger, ["books", "toys"])
    >>> check_labels(ledger, ["books", "wine"])
    Traceback (most recent call last):
    fairsync.errors.InvalidInputError: the ledger counts 'toys' where this catalog has 'wine': it belongs to another
    catalog. Give the ledger of this catalog, or a new one.
    """
    for known, label in zip(load_labels(ledger) or [], labels, strict=False):
        if known != label:
            raise InvalidInputError(
                f"the ledger counts {known!r} where this catalog has {label!r}: it belongs to another catalog. Give the"
                " ledger of this catalog, or a new one."
            )


def save_labels(ledger: Ledger, labels: Sequence[Label]) -> None:
    """Save the labels of the groups that a ledger counts. Call it before new groups are counted."""
    saved = load_labels(ledger)
    if saved is None or len(labels) > len(saved):
        ledger.save(_NAME, json.dumps(list(labels)).encode())
