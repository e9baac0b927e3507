"""Tables are read in pieces of limited size."""

from pathlib import Path
from typing import Any

import pytest

from fairsync.ledger import SqlLedger
from fairsync.ledger.tables import SERIAL, TABLES, read_pieces


def test_a_backup_has_every_column_of_the_schema_except_leases(tmp_path: Path) -> None:
    with SqlLedger(tmp_path / "a.db", 2) as ledger:
        run = ledger.database.run
        tables = {row[0] for row in run(lambda tx: tx.execute("SELECT name FROM sqlite_master WHERE type = 'table'"))}
        assert tables - {"sqlite_sequence"} == {*TABLES, "leases", "grants"}
        for table, columns in TABLES.items():
            found = _columns(ledger, table)
            assert tuple(row[0] for row in found) == columns
            assert found[0][1] == 1, "the first column is the key"
        serial = run(lambda tx: tx.execute("SELECT name FROM sqlite_master WHERE sql LIKE '%AUTOINCREMENT%'"))
        assert {row[0] for row in serial} == {*SERIAL, "leases"}


def _columns(ledger: SqlLedger, table: str) -> list[tuple[Any, ...]]:
    """Return name and place in the primary key of each column."""
    return ledger.database.run(lambda tx: tx.execute(f"SELECT name, pk FROM pragma_table_info('{table}')"), "read")


def test_pieces_are_small_and_complete(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairsync.ledger.tables._PIECE_BYTES", 10_000)
    with SqlLedger(url, 2) as ledger:
        answers = {f"{number}": bytes(1 + 997 * (number % 7)) for number in range(500)}
        ledger.record([], answers=answers)
        pieces = ledger.database.run(lambda tx: list(read_pieces(tx, "answers")), "read")
    assert {row[1]: row[2] for piece in pieces for row in piece} == answers
    assert sum(map(len, pieces)) == 500
    assert max(sum(len(row[2]) for row in piece) for piece in pieces[1:]) < 50_000
    assert len(pieces) < 250
