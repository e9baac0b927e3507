"""``fairsync ledger``: show, check, backup, restore and migrate, for SQLite and Postgres."""

from __future__ import annotations

import json
import re
import secrets
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from typer.testing import CliRunner

from fairsync.cli import app
from fairsync.ledger import Entry, SqlLedger
from fairsync.ledger.file_lock import FileLock
from fairsync.ledger.labels import save_labels
from fairsync.schedule import Forecast, ScheduledPromise, Window
from fairsync.service.promises.saved_state import SavedState
from ledger.old_formats import OLD, write_old
from postgres_server import PASSWORD, QUOTED, PostgresServer

if TYPE_CHECKING:
    from pathlib import Path

ENTRY = Entry(np.array([30, 1_200]), 70, 0.5, 0.25, impressions=np.array([1, 5]))


def run(*arguments: object) -> Any:
    given = [str(argument) for argument in arguments]
    done = CliRunner().invoke(app, ["ledger", *given], env={"COLUMNS": "200", "NO_COLOR": "1"})
    for secret in (PASSWORD, QUOTED, "hidden"):
        assert secret not in done.output
    return done


@pytest.fixture(params=["path", "url", "config", "postgres"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A ledger, named in one of the ways of naming it."""
    path = tmp_path / "exposures of a day.db"
    named = {
        "path": str(path),
        "url": f"sqlite:///{path}",
        "config": str(tmp_path / "service.toml"),
    }.get(request.param)
    (tmp_path / "service.toml").write_text(
        'ledger = "sqlite:///exposures%20of%20a%20day.db"\n[catalog]\npath = "items"\n'
    )
    return named or request.getfixturevalue("postgres").schema(f"ledger_{secrets.token_hex(8)}")


def opened(source: str, tmp_path: Path) -> SqlLedger:
    return SqlLedger(source if "postgresql" in source else tmp_path / "exposures of a day.db", 2)


def fill(ledger: SqlLedger) -> None:
    """Record exposures, and save the promises of a service."""
    ledger.record([ENTRY], key="x", answers={"a": b"answer"})
    promise = ScheduledPromise.of_group("books [bold]", 500, Window.day("UTC"))
    SavedState(("books [bold]", "wine"), {"p1": promise}, Forecast(rate=1.0)).save(ledger)


def test_show(source: str, tmp_path: Path) -> None:
    with opened(source, tmp_path) as ledger:
        fill(ledger)
        shown = run("show", source)  # while it is in use
        assert shown.exit_code == 0, shown.output
        for words in (
            "70 requests in 1 horizons, 2 groups",
            "1 saved, 6 bytes, since 20",
            "0 expired",
            "books [bold]",
            "1,200",
            "500 exposures of group=books [bold]",
        ):
            assert words in shown.output, shown.output
        rows = [line.split("│")[1].strip() for line in shown.output.splitlines() if line.startswith("│")]
        assert rows == ["wine", "books [bold]"], "the group with most exposures first"
        found = json.loads(run("show", source, "--json").stdout)
    assert found["format"] == 4
    assert (found["groups"], found["horizons"], found["requests"]) == (2, 1, 70)
    assert found["horizon"]["groups"] == [
        {"group": "books [bold]", "exposures": 30, "impressions": 1},
        {"group": "wine", "exposures": 1_200, "impressions": 5},
    ]
    assert (found["answers"], found["answer_bytes"], found["expired_answers"]) == (1, 6, 0)
    assert abs((datetime.fromisoformat(found["answers_since"]) - datetime.now(UTC)).total_seconds()) < 600
    assert [(one["id"], one["where"], one["at_least"]) for one in found["promises"]] == [
        ("p1", {"group": "books [bold]"}, 500)
    ]


def test_show_without_a_service(tmp_path: Path) -> None:
    with SqlLedger(tmp_path / "a.db", 30) as ledger:
        ledger.record([Entry(np.arange(30), 5, 0.5, float("nan"))])
    shown = run("show", tmp_path / "a.db", "--groups", 3)
    rows = [line.split("│")[1].strip() for line in shown.output.splitlines() if line.startswith("│")]
    assert rows == ["number 29", "number 28", "number 27"]
    assert "and 27 more groups: --groups 30" in shown.output
    found = json.loads(run("show", tmp_path / "a.db", "--json").stdout)
    assert found["horizon"]["cost"] is None
    assert found["horizon"]["groups"][29] == {"group": None, "exposures": 29, "impressions": None}


def test_show_tells_groups_from_selections(tmp_path: Path) -> None:
    with SqlLedger(tmp_path / "a.db", 3) as ledger:
        save_labels(ledger, ["books", '{"new": true, "provider": "acme"}', "wine"])
        ledger.record([Entry(np.array([7, 5, 6]), 9, 0.5, 0.1)])
    shown = run("show", tmp_path / "a.db").output
    assert "9 requests in 1 horizons, 2 groups and 1 selection" in shown
    rows = [line.split("│")[1].strip() for line in shown.splitlines() if line.startswith("│")]
    assert rows == ["books", "wine", "new=True, provider=acme"]
    assert "group or selection" in shown
    assert "and 2 more: --groups 3" in run("show", tmp_path / "a.db", "--groups", 1).output
    found = json.loads(run("show", tmp_path / "a.db", "--json").stdout)
    assert (found["groups"], found["selections"]) == (2, 1)
    assert [one["group"] for one in found["horizon"]["groups"]] == ["books", "wine"]
    assert found["horizon"]["selections"] == [
        {"where": {"new": True, "provider": "acme"}, "exposures": 5, "impressions": None}
    ]


def test_show_has_no_name_of_thousands_of_labels(tmp_path: Path) -> None:
    many = json.dumps({"provider": [f"p{number:03}" for number in range(100)]})
    with SqlLedger(tmp_path / "a.db", 2) as ledger:
        save_labels(ledger, ["books", many])
        ledger.record([Entry(np.array([7, 5]), 9, 0.5, 0.1)])
    shown = run("show", tmp_path / "a.db").output
    assert "provider=p000 or p001" in shown
    assert "p099" not in shown


@pytest.mark.parametrize("old", OLD)
def test_earlier_formats_are_shown_checked_and_migrated(old: str, tmp_path: Path) -> None:
    path = write_old(tmp_path / "a.db", OLD[old])
    assert "7 requests in 2 horizons, 2 groups" in run("show", path).output
    assert json.loads(run("show", path, "--json").stdout)["format"] == int(old[0])
    assert run("check", path).exit_code == 0
    done = run("migrate", path)
    assert done.exit_code == 0, done.output
    assert f"{path} is migrated from format {old[0]} to 4: 7 requests in 2 horizons, 2 columns." in done.output
    again = run("migrate", path)
    assert again.exit_code == 0
    assert "has the present format, 4: nothing was changed" in again.output
    assert json.loads(run("show", path, "--json").stdout)["format"] == 4


def test_migrate_needs_a_ledger_that_is_free(tmp_path: Path) -> None:
    path = write_old(tmp_path / "a.db", OLD["2"])
    lock = FileLock(path)
    refused = run("migrate", path)
    lock.release()
    assert refused.exit_code == 1
    assert "is open in this process" in refused.output
    assert json.loads(run("show", path, "--json").stdout)["format"] == 2


def test_backup_and_restore(source: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    with opened(source, tmp_path) as ledger:
        fill(ledger)
        done = run("backup", source, copy)
        assert done.exit_code == 0, done.output
        assert done.output.startswith(f"{copy} is a backup of ")
        assert "70 requests in 1 horizons, 2 columns" in done.output
        ledger.record([ENTRY])
        refused = run("restore", source, copy)
        assert refused.exit_code == 1
        assert re.search("in use by another process: stop it first|is open in this process", refused.output)
    done = run("restore", source, copy)
    assert done.exit_code == 0, done.output
    assert f"is restored from {copy}: 70 requests in 1 horizons" in done.output
    assert "the replaced ledger is " in done.output
    with opened(source, tmp_path) as ledger:
        assert ledger.totals().requests == 70


def test_check(source: str, tmp_path: Path) -> None:
    with opened(source, tmp_path) as ledger:
        fill(ledger)
        sound = run("check", source)
        assert sound.exit_code == 0, sound.output
        assert "is undamaged: 70 requests in 1 horizons, 2 columns." in sound.output
        ledger.save("service", b"{}")
        damaged = run("check", source)
        assert damaged.exit_code == 1
        assert "its promises cannot be read" in damaged.output
        ledger.database.run(lambda tx: tx.execute("UPDATE horizons SET exposures = :cut", cut=b"1"), "exclusive")
        damaged = run("check", source)
        assert damaged.exit_code == 1
        assert "is damaged: a count of horizon 0 is cut off. Restore a backup." in damaged.output


def test_check_of_a_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with SqlLedger(path, 2) as ledger:
        for number in range(300):
            ledger.record([ENTRY], key=f"{number}")
    with closing(sqlite3.connect(path)) as db:
        (page,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name LIKE 'sqlite_autoindex_keys%'").fetchone()
    data = bytearray(path.read_bytes())
    data[4096 * (page - 1) : 4096 * page] = bytes(4096)
    path.write_bytes(data)
    damaged = run("check", path)
    assert damaged.exit_code == 1
    assert "damaged" in damaged.output


@pytest.mark.parametrize("command", ["show", "check", "backup", "restore", "migrate"])
@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis://:hidden@localhost:6379/0", "a URL that begins with redis:// is no ledger: write sqlite:///"),
        ("mysql://me:hidden@localhost/exposures", "a URL that begins with mysql:// is no ledger"),
        ("sqlite://exposures.db", "is no ledger: write sqlite:///exposures.db"),
        ("memory://", "the ledger is in memory and ends with its process: name one in SQLite or Postgres"),
        ("postgresql://me:hidden@[localhost/shop", "the URL of the ledger cannot be read"),
    ],
)
def test_other_urls_are_refused_with_a_remedy(command: str, url: str, words: str, tmp_path: Path) -> None:
    more = [tmp_path / "copy.db"] if command in ("backup", "restore") else []
    refused = run(command, url, *more)
    assert refused.exit_code == 1
    assert words in refused.output
    assert not list(tmp_path.iterdir())


def test_a_service_with_a_ledger_in_memory(tmp_path: Path) -> None:
    (tmp_path / "service.toml").write_text('ledger = "memory://"\n[catalog]\npath = "items"\n')
    refused = run("show", tmp_path / "service.toml")
    assert refused.exit_code == 1
    assert "the ledger is in memory" in refused.output


@pytest.mark.parametrize("command", ["show", "check", "backup", "migrate"])
def test_ledgers_that_do_not_exist(command: str, tmp_path: Path, postgres: PostgresServer) -> None:
    more = [tmp_path / "copy.db"] if command == "backup" else []
    for source, words in (
        (str(tmp_path / "nowhere.db"), "there is no file"),
        (postgres.schema("nowhere"), "there is no ledger in postgresql://127.0.0.1"),
        (postgres.url.replace(QUOTED, "hidden"), "Check user, password and rights"),
    ):
        refused = run(command, source, *more)
        assert refused.exit_code == 1
        assert words in refused.output
    assert not list(tmp_path.iterdir())


def test_help_teaches_with_examples() -> None:
    overview = run("--help").output
    for command in ("show", "check", "backup", "restore", "migrate"):
        assert command in overview
        assert f"fairsync ledger {command}" in run(command, "--help").output
