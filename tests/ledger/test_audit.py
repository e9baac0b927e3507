"""The audit of a ledger: it can only grow, and a part that is missing or changed is noticed."""

import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairsync.errors import FairSyncError
from fairsync.ledger import MemoryLedger, SqlLedger
from fairsync.ledger.audit import AuditRecord, chain, find_audit_damage
from fairsync.ledger.backup import back_up, restore
from fairsync.ledger.database import Transaction
from fairsync.ledger.reader import LedgerReader
from fairsync.ledger.schema import FORMAT, read_schema
from ledger.writing import new_schema
from postgres_server import PostgresServer


def records(*texts: str) -> list[AuditRecord]:
    return [AuditRecord(f"id of {text}", text) for text in texts]


def tamper(url: str, *statements: str) -> None:
    """Run SQL as somebody who may do anything with the database, triggers included."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as db, db:
            for trigger in ("audit_update", "audit_delete"):
                db.execute(f"DROP TRIGGER {trigger}")
            for statement in statements:
                db.execute(statement)
    else:
        address, _, schema = url.partition("?schema=")
        with psycopg.connect(address) as connection:
            connection.execute(f"SET search_path = {schema}".encode())
            connection.execute("ALTER TABLE audit DISABLE TRIGGER ALL")
            for statement in statements:
                connection.execute(statement.encode())


def test_entries_are_numbered_and_pages_go_back(url: str) -> None:
    for ledger in (SqlLedger(url, 2), MemoryLedger(2)):
        with ledger:
            assert ledger.audit(10).total == 0
            ledger.save("a", b"1", records("one", "two"))
            ledger.save("a", b"2", records("two", "three"))  # "two" again, because its outcome was not heard
            page = ledger.audit(2)
            assert page.entries == ((3, "three"), (2, "two"))
            assert (page.total, page.damage) == (3, ())
            assert page.digest == chain(chain(chain("", "one"), "two"), "three")
            assert ledger.audit(10, before=2).entries == ((1, "one"),)
            assert ledger.audit(10, before=1).entries == ()
            assert ledger.load("a") == b"2"


def test_value_and_record_are_saved_together_or_not_at_all(url: str) -> None:
    with SqlLedger(url, 2) as ledger:

        def refuse(_: object) -> None:
            raise FairSyncError("not the leader")

        ledger.fence = refuse
        with pytest.raises(FairSyncError, match="not the leader"):
            ledger.save("a", b"1", records("one"))
        ledger.fence = None
        assert ledger.load("a") is None
        assert ledger.audit(9).total == 0


@pytest.mark.parametrize("statement", ["UPDATE audit SET record = 'x'", "DELETE FROM audit", "TRUNCATE audit"])
def test_the_database_refuses_everything_but_additions(url: str, statement: str) -> None:
    with SqlLedger(url, 2) as ledger:
        ledger.save("a", b"", records("one", "two"))
        if statement.startswith("TRUNCATE") and url.startswith("sqlite"):
            return  # it knows no such statement
        with pytest.raises(FairSyncError, match="can only be added"):
            ledger.database.run(lambda transaction: transaction.execute(statement))
        assert ledger.audit(9).entries == ((2, "two"), (1, "one"))


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("DELETE FROM audit WHERE number > 3", "truncated: entries 4 to 5 are missing"),
        ("DELETE FROM audit WHERE number = 1", "truncated: entry 1 is missing"),
        ("DELETE FROM audit", "truncated: entries 1 to 5 are missing"),
        ("UPDATE audit SET record = 'x' WHERE number = 2", "entry 2 of its audit was changed"),
        ("DELETE FROM facts WHERE name = 'audit'", "another end than was written"),
    ],
)
def test_what_was_removed_or_changed_by_force_is_noticed(url: str, statement: str, words: str, tmp_path: Path) -> None:
    with SqlLedger(url, 2) as ledger:
        ledger.save("a", b"", records(*"abcde"))
    tamper(url, statement)
    with SqlLedger(url, None) as ledger:
        assert any(words in one for one in ledger.audit(9).damage)
    with LedgerReader(url) as reader:
        assert any(words in one for one in reader.check())
    back_up(url, tmp_path / "copy.db")  # the rest of the ledger is worth it, and the copy says the same
    with LedgerReader(tmp_path / "copy.db") as reader:
        assert any(words in one for one in reader.check())


@pytest.mark.parametrize("target", ["sqlite", "postgres"])
def test_it_survives_backup_and_restore_and_says_what_a_restore_has_lost(
    url: str, target: str, tmp_path: Path, postgres: PostgresServer
) -> None:
    copy, other = tmp_path / "night.db", new_schema(postgres) if target == "postgres" else f"sqlite:///{tmp_path}/b.db"
    with SqlLedger(url, 2) as ledger:
        ledger.save("a", b"", records("one", "two"))
        back_up(url, copy)
        ledger.save("a", b"", records("three", "four"))
    restore(copy, other)
    restore(copy, url)
    for place, lost in ((other, ""), (url, "; later ones, up to entry 4, are in the replaced ledger only")):
        with SqlLedger(place, None) as ledger:
            page = ledger.audit(9)
            assert page.damage == ()
            assert [one[1] for one in page.entries[1:]] == ["two", "one"]
            number, last = page.entries[0]
            assert number == 3
            assert f'the backup night.db was restored, whose audit ends with entry 2{lost}"' in last
            with pytest.raises(FairSyncError, match="can only be added"):
                ledger.database.run(lambda transaction: transaction.execute("DELETE FROM audit"))
            ledger.save("a", b"", records("five"))
            assert ledger.audit(1).entries == ((4, "five"),)
            assert ledger.audit(1).damage == ()


def test_a_ledger_of_format_3_gets_an_audit(url: str, tmp_path: Path) -> None:
    """Format 3 is the present one without the audit."""
    with SqlLedger(url, 2) as ledger:
        database = ledger.database

        def make_old(transaction: Transaction) -> None:
            transaction.execute("DROP TABLE audit")
            database.write_format(transaction, 3)

        database.run(make_old, "exclusive")
    with LedgerReader(url) as reader:
        assert reader.summary().format == 3
        assert reader.contents().audit == 0
        assert reader.check() == []
        assert reader.load("nothing") is None
    assert back_up(url, tmp_path / "copy.db").format == FORMAT, "it is migrated in the copy"
    with SqlLedger(url, None) as ledger:
        ledger.save("a", b"", records("one"))
        assert ledger.audit(9).entries == ((1, "one"),)
        with pytest.raises(FairSyncError, match="can only be added"):
            ledger.database.run(lambda transaction: transaction.execute("DELETE FROM audit"))
    with LedgerReader(url) as reader:
        assert reader.summary().format == FORMAT
        assert reader.contents().audit == 1


def test_no_code_path_changes_the_audit() -> None:
    """The triggers are the second line: no statement in the package updates or deletes its rows."""
    source = Path(find_audit_damage.__code__.co_filename).parents[1]
    texts = [path.read_text(encoding="utf-8") for path in source.rglob("*.py")]
    for statement in ("UPDATE audit", "DELETE FROM audit", "TRUNCATE audit", "DROP TABLE audit"):
        assert not any(statement in text for text in texts), statement
    assert "CREATE TABLE audit" in read_schema()


@given(st.lists(st.text(), max_size=6), st.data())
def test_any_single_removal_or_change_is_found(texts: list[str], data: st.DataObject) -> None:
    rows: list[tuple[int, str, str]] = []
    for number, text in enumerate(texts, 1):
        rows.append((number, text, chain(rows[-1][2] if rows else "", text)))
    head = (len(rows), rows[-1][2] if rows else "")
    assert find_audit_damage(rows, head) == []
    if not rows:
        return
    at = data.draw(st.integers(0, len(rows) - 1))
    if data.draw(st.booleans()):
        assert find_audit_damage([*rows[:at], *rows[at + 1 :]], head)
    else:
        changed = data.draw(st.text().filter(lambda text: text != texts[at]))
        assert find_audit_damage([*rows[:at], (at + 1, changed, rows[at][2]), *rows[at + 1 :]], head)
