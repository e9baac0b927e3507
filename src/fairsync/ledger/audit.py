"""The audit of a ledger: an append-only table of what was done to promises, chained by digests."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairsync.ledger.tables import read_pieces, write_fact

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fairsync.ledger.database import Transaction

# The row of the table ``facts`` with the number and the digest of the last entry.
HEAD = "audit"
# The digest before the first entry.
_START = ""
# Sentences about damage that are returned. Of more, one says enough.
_MOST = 5


@dataclass(frozen=True)
class AuditRecord:
    """A record to be added to the audit.

    Attributes
    ----------
    id : str
        Idempotency key: a record whose id is known is not added again.
    record : str
        What was done, as JSON.
    """

    id: str
    record: str


@dataclass(frozen=True)
class AuditPage:
    """Some of the entries of an audit.

    Attributes
    ----------
    entries : tuple
        Number and record of each, latest first.
    total : int
        Number of entries that were ever written.
    digest : str
        Digest of the last entry. It is made of all records: to be sure later that none was changed, note it elsewhere.
    damage : tuple of str
        What was changed or removed since it was written, each as half a sentence; empty if the audit is complete.
    """

    entries: tuple[tuple[int, str], ...]
    total: int
    digest: str
    damage: tuple[str, ...] = ()


def append_audit(transaction: Transaction, records: Sequence[AuditRecord]) -> None:
    """Add records to the audit, without those that it has already."""
    if not records:
        return
    number, digest = read_head(transaction, lock=True)
    ids = json.dumps([one.id for one in records])
    known = {row[0] for row in transaction.execute("SELECT id FROM audit WHERE id IN {ids}", ids=ids)}
    for one in records:
        if one.id in known:
            continue
        number, digest = number + 1, chain(digest, one.record)
        transaction.execute(
            "INSERT INTO audit (number, id, record, digest) VALUES (:number, :id, :record, :digest)",
            number=number,
            id=one.id,
            record=one.record,
            digest=digest,
        )
    write_fact(transaction, HEAD, f"{number} {digest}")


def read_audit(transaction: Transaction, limit: int, before: int | None = None) -> AuditPage:
    """Return the latest entries, or the latest ones before a number, and verify the whole audit.

    Parameters
    ----------
    transaction
        The transaction under way.
    limit
        Largest number of entries.
    before
        Number of an entry; only entries with smaller numbers are returned.
    """
    rows = transaction.execute(
        "SELECT number, record FROM audit WHERE number < :before ORDER BY number DESC LIMIT :limit",
        before=2**62 if before is None else before,
        limit=limit,
    )
    head = read_head(transaction)
    entries = (row for piece in read_pieces(transaction, "audit") for row in piece)
    damage = find_audit_damage(((row[0], row[2], row[3]) for row in entries), head)
    return AuditPage(tuple((int(row[0]), str(row[1])) for row in rows), head[0], head[1], tuple(damage))


def read_head(transaction: Transaction, *, lock: bool = False) -> tuple[int, str]:
    """Return the number and the digest of the last entry that was written; 0 if there is none."""
    query = "SELECT value FROM facts WHERE name = :name" + (" {for_update}" if lock else "")
    rows = transaction.execute(query, name=HEAD)
    number, _, digest = (str(rows[0][0]) if rows else "0 ").partition(" ")
    return int(number), digest


def chain(digest: str, record: str) -> str:
    """Return the digest of an entry, made of the digest of the one before it and of its record."""
    return hashlib.sha256(f"{digest}\n{record}".encode()).hexdigest()


def find_audit_damage(rows: Iterable[tuple[int, str, str]], head: tuple[int, str]) -> list[str]:
    """Return what is missing or changed in an audit, each as half a sentence.

    Parameters
    ----------
    rows
        Number, record and digest of all entries, in the order of their numbers.
    head
        Number and digest of the last entry that was written.

    Examples
    --------
    >>> one, two = chain("", "a"), chain(chain("", "a"), "b")
    >>> find_audit_damage([(1, "a", one), (2, "b", two)], (2, two))
    []
    >>> find_audit_damage([(1, "a", one)], (2, two))
    ['its audit was truncated: entry 2 is missing']
    >>> find_audit_damage([(2, "c", two)], (2, two))
    ['its audit was truncated: entry 1 is missing']
    >>> find_audit_damage([(1, "x", one), (2, "b", two)], (2, two))
    ['entry 1 of its audit was changed']
    """
    found: list[str] = []
    last, digest = 0, _START
    for number, record, stored in rows:
        if number > last + 1:
            found.append(_missing(last + 1, number - 1))
        elif chain(digest, record) != stored:
            found.append(f"entry {number} of its audit was changed")
        last, digest = number, stored
    if last < head[0]:
        found.append(_missing(last + 1, head[0]))
    elif (last, digest) != head:
        found.append("its audit has another end than was written")
    return found if len(found) <= _MOST else [*found[:_MOST], f"and {len(found) - _MOST:,} more faults of its audit"]


def _missing(first: int, last: int) -> str:
    which = f"entry {first} is" if first == last else f"entries {first} to {last} are"
    return f"its audit was truncated: {which} missing"
