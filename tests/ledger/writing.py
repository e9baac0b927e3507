"""An entry, a process that writes entries until it is killed, and everything that a ledger holds."""

import secrets
from typing import Any

import numpy as np

from fairsync.ledger import Entry, SqlLedger
from fairsync.ledger.base import Totals
from fairsync.ledger.database import Transaction
from fairsync.ledger.tables import TABLES
from postgres_server import PostgresServer

ENTRY = Entry(np.array([1, 2]), 1, 0.5, 0.25, forced=1)


WRITER = """
import sys, numpy as np
from fairsync.ledger import Entry, SqlLedger
ledger, start = SqlLedger(sys.argv[1], 2), int(sys.argv[2])
for number in range(start, 10**9):
    opens = number % 50 == 0
    ledger.record([Entry(np.array([1, 2]), 1, 0.5, 0.25, opens_horizon=opens)], key=f"{number}")
    print(number, flush=True)
"""


def new_schema(server: PostgresServer) -> str:
    """Return the URL of a new ledger in Postgres."""
    return server.schema(f"ledger_{secrets.token_hex(8)}")


def fill(ledger: SqlLedger) -> None:
    """Write at least one row into every table."""
    ledger.record([ENTRY, ENTRY], key="first", answers={"r1": b"one", "r2": b"\0two"})
    unmeasured = Entry(np.array([3, 0]), 1, 1.5, float("nan"), opens_horizon=True, began=60.5)
    impressions = Entry(np.array([0, 0]), 0, 0.0, 0.0, impressions=np.array([0, 2]))
    ledger.record([unmeasured, impressions], key="second")
    ledger.grow(3)
    ledger.record([ENTRY.grown(3)], answers={"r3": b"three"})
    ledger.save("policy guaranteed", bytes(range(256)))
    ledger.save("service", b"")

    def insert(transaction: Transaction) -> None:
        transaction.insert("expired_answers", {"request_id": ["r0"]})
        transaction.insert("facts", {"name": ["terms"], "value": ["7"]})
        items: dict[str, list[object]] = {
            "id": ['"a"', '"b"'],
            "attributes": ['{"group": "x"}', None],
            "embedding": [b"1234", None],
            "catalog": ["c", "c"],
        }
        transaction.insert("items", items, at="changed_at")
        counted: dict[str, list[object]] = {
            "requests": [0],
            "relevance": [0.0],
            "cost": [0.0],
            "forced": [0],
            "exposures": [bytes(24)],
        }
        transaction.insert("entries", counted)
        transaction.insert("leases", {"number": [5], "requests": [16], "expires_at": [9e9], "replica": ["a"]})

    ledger.database.run(insert, "exclusive")


def content(ledger: SqlLedger) -> dict[str, list[tuple[Any, ...]]]:
    """Return all rows of all tables that a backup has."""

    def read(transaction: Any) -> dict[str, list[tuple[Any, ...]]]:
        return {
            table: [
                row
                for row in transaction.execute(f"SELECT {', '.join(columns)} FROM {table} ORDER BY 1")
                if (table, row[0]) != ("facts", "format")
            ]
            for table, columns in TABLES.items()
        }

    return ledger.database.run(read, "read")


def horizons(ledger: SqlLedger) -> list[Totals]:
    """Return the totals of all horizons, oldest first."""
    return [*ledger.past(), ledger.totals()]
