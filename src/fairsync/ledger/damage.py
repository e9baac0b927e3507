"""Find damage in the content of a ledger: counts that cannot be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.ledger.tables import TABLES, read_pieces

if TYPE_CHECKING:
    from fairsync.ledger.database import Transaction

# Sentences of one table that are returned. Of more, one says enough.
_MOST = 5


def find_damage(transaction: Transaction) -> list[str]:
    """Return what is damaged in the tables of the present format, each as half a sentence.

    Every horizon must be there, with counts of whole numbers that are not negative, and with at least as many groups
    as the one before. A request must not have an answer and be expired as well.
    """
    ((count, first, last),) = transaction.execute("SELECT count(*), min(number), max(number) FROM horizons")
    if not count:
        return ["it has no horizon"]
    found = [] if (first, last) == (0, count - 1) else ["horizons are missing"]
    n_groups = 0
    for piece in read_pieces(transaction, "horizons"):
        for row in piece:
            found += _damage_of("horizon", dict(zip(TABLES["horizons"], row, strict=True)))
            if len(row[6]) // 8 < n_groups:
                found.append(f"horizon {row[0]} has fewer groups than the one before")
            n_groups = len(row[6]) // 8
    for piece in read_pieces(transaction, "entries"):
        for row in piece:
            found += _damage_of("entry", dict(zip(TABLES["entries"], row, strict=True)))
            if len(row[5]) // 8 > n_groups:
                found.append(f"entry {row[0]} has more groups than its horizon")
    both = transaction.execute(
        "SELECT count(*) FROM expired_answers WHERE request_id IN (SELECT request_id FROM answers)"
    )[0][0]
    if both:
        found.append(f"{both:,} requests have an answer and are expired as well")
    return found if len(found) <= _MOST else [*found[:_MOST], f"and {len(found) - _MOST:,} more faults"]


def _damage_of(kind: str, row: dict[str, Any]) -> list[str]:
    name, found = f"{kind} {row['number']}", []
    for column in ("exposures", "impressions"):
        counts = row[column] or b""
        if len(counts) % 8:
            found.append(f"a count of {name} is cut off")
        elif (np.frombuffer(counts, dtype="<i8") < 0).any():
            found.append(f"{name} has a negative count")
    if row["requests"] < 0 or row["forced"] < 0 or not np.isfinite(row["relevance"]):
        found.append(f"the totals of {name} cannot be")
    return found
