"""Statements: every window of a month, counted one by one, and nothing else."""

from __future__ import annotations

import csv
import io
from contextlib import closing
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from fairsync.catalog import Catalog
from fairsync.cli import app
from fairsync.coordination.coordinator import Coordinator
from fairsync.coordination.front_end import FrontEnd
from fairsync.errors import InvalidInputError
from fairsync.ledger import SqlLedger
from fairsync.promises import Promise
from fairsync.schedule import Forecast, ScheduledPromise, Window
from fairsync.service.promises.promise_service import PromiseService
from fairsync.service.promises.statement import make_statement, reason_of
from fairsync.service.schema import PastWindow
from fairsync.service.statement_files import statement_csv, statement_html
from service.running import TOKENS, make_settings, running

if TYPE_CHECKING:
    from pathlib import Path

STEP = timedelta(hours=12)
LABELS = ["acme", "=HYPERLINK(<b>)", "none"]


class Shop:
    """A service with a clock and traffic that tests control, over a file."""

    def __init__(self, path: Path, start: datetime) -> None:
        rng = np.random.default_rng(3)
        self.now, self._path, self._rng = start, path, rng
        self.catalog = Catalog(rng.normal(size=(60, 8)).astype(np.float32), {"provider": np.repeat(LABELS, 20)})
        self.open([])

    def open(self, promises: list[ScheduledPromise]) -> None:
        self.ledger = SqlLedger(self._path, 3)
        coordinator = Coordinator(self.catalog, k=4, floors=0, horizon=1, ledger=self.ledger, auto_restart=False)
        front = FrontEnd(self.catalog, coordinator)
        forecast = Forecast(rate=40 / 3600)
        self.service = PromiseService(front, coordinator, promises, forecast, clock=lambda: self.now.timestamp())

    def close(self) -> None:
        self.service.close()
        self.ledger.close()

    def until(self, end: datetime, per_step: int = 480) -> list[tuple[datetime, int]]:
        """Serve until a moment; return when each step ended and what acme got in it."""
        got = []
        while self.now < end:
            self.now += STEP - timedelta(seconds=1)
            shown = 0
            if per_step:
                found = self.service.retrieve(self._rng.normal(size=(per_step, 8)))
                shown = int(np.count_nonzero(found.groups == "acme"))
            got.append((self.now, shown))
            self.now += timedelta(seconds=1)
            self.service.refresh()
        return got


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """From 29 October to 2 December: a daily promise in Berlin's time that is missed on two days, and a restart."""
    made = Shop(tmp_path_factory.mktemp("shop") / "a.db", datetime(2026, 10, 28, 23, tzinfo=UTC))
    daily = ScheduledPromise.of_group("acme", 1100, Window.day("Europe/Berlin"), "provider")
    made.service.editor.set_promise(daily, by="campaigns")
    other = ScheduledPromise.of_group(LABELS[1], 5, Window.week("UTC"), "provider")
    made.service.editor.set_promise(other)
    hours = made.until(datetime(2026, 11, 9, 23, tzinfo=UTC))
    hours += made.until(datetime(2026, 11, 10, 23, tzinfo=UTC), per_step=20)
    hours += made.until(datetime(2026, 11, 20, 11, tzinfo=UTC))
    made.close()
    made.open([])
    hours += made.until(datetime(2026, 12, 1, 23, tzinfo=UTC))
    yield made, hours
    made.close()


def test_it_has_every_window_of_the_month_with_its_exposures(shop: Any) -> None:
    made, hours = shop
    found = made.service.statement("provider", "acme", "2026-11")
    midnight = datetime(2026, 10, 31, 23, tzinfo=UTC)  # 1 November in Berlin
    days = [midnight + timedelta(days=day) for day in range(31)]
    assert [(row.start, row.end) for row in found.rows] == list(pairwise(days))
    counted = [sum(shown for at, shown in hours if row.start <= at < row.end) for row in found.rows]
    assert [row.delivered for row in found.rows] == counted
    assert [row.kept for row in found.rows] == [shown >= 1100 for shown in counted]
    missed = [row for row in found.rows if not row.kept]
    assert 1 <= len(missed) <= 2
    for row in found.rows:
        assert row.missing == max(1100 - row.delivered, 0)
        assert (row.reached is None) == (not row.kept)
        assert bool(row.reason) == (not row.kept)
        if row.reached is not None:  # the plan after the step that reached it
            before = sum(shown for at, shown in hours if row.start <= at < row.reached)
            earlier = sum(shown for at, shown in hours if row.start <= at < row.reached - STEP)
            assert earlier < 1100 <= before
    assert "requests came in the window" in missed[0].reason
    assert found.remarks == []
    assert found.label == "acme"


def test_a_share_is_reached_when_its_window_ends(tmp_path: Path) -> None:
    start = datetime(2026, 10, 30, tzinfo=UTC)
    made = Shop(tmp_path / "a.db", start)
    made.service.editor.set_promise(ScheduledPromise(Promise({"provider": "acme"}, 0.05), Window.day("UTC")))
    made.until(start + timedelta(days=5))
    rows = made.service.statement("provider", "acme", "2026-11").rows
    assert [(row.kept, row.reached == row.end) for row in rows] == [(True, True)] * len(rows)
    assert len(rows) >= 2
    made.close()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"note": "the service was down from 9 to 10"}, "The service was down from 9 to 10. 40 requests came in"),
        (
            {"impossible_since": datetime(2026, 11, 3, 7, tzinfo=UTC), "foreseen": 1200},
            "since 2026-11-03 07:00 UTC, when 1,200",
        ),
        ({}, "40 requests came in the window. It was not foreseen"),
    ],
)
def test_a_missed_window_has_a_reason(more: dict[str, Any], words: str) -> None:
    start, end = datetime(2026, 11, 3, tzinfo=UTC), datetime(2026, 11, 4, tzinfo=UTC)
    past = PastWindow(promise="a", start=start, end=end, floor=50, exposures=44, kept=False, requests=40, **more)
    assert words in reason_of(past)
    assert reason_of(msgspec.structs.replace(past, kept=True)) == ""


def test_a_month_that_is_not_covered_says_so(shop: Any) -> None:
    made, _ = shop
    october = made.service.statement("provider", "acme", "2026-10")
    assert len(october.rows) == 3
    assert any("were not archived" in one for one in october.remarks)
    december = made.service.statement("provider", "acme", "2026-12")
    assert [one[:22] for one in december.remarks] == ["The month is not over:"]


@pytest.mark.parametrize(
    ("attribute", "label", "month", "words"),
    [
        ("provider", "acmee", "2026-11", "'provider' has no label 'acmee': its labels are"),
        ("colour", "red", "2026-11", "the catalog has no attribute 'colour': choose one of 'provider'"),
        ("provider", "none", "2026-11", r"no window of a promise to provider 'none' ended in 2026-11\. Windows are"),
        ("provider", "acme", "2027-01", "it has not begun"),
        ("provider", "acme", "2025-11", "Windows are archived since 2026-10-29"),
        ("provider", "acme", "2026-13", "write year and month"),
        ("provider", "acme", "Nov 2026", "write year and month"),
    ],
)
def test_bad_input_says_what_to_do(shop: Any, attribute: str, label: str, month: str, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        shop[0].service.statement(attribute, label, month)


class Cells(HTMLParser):
    """Collects tags and texts."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_both_files_have_all_rows_and_labels_stay_text(shop: Any) -> None:
    made, _ = shop
    found = made.service.statement("provider", "acme", "2026-11")
    rows = list(csv.DictReader(io.StringIO(statement_csv(found))))
    assert [int(row["delivered"]) for row in rows] == [row.delivered for row in found.rows]
    assert rows[0]["start"] == "2026-11-01T00:00:00+01:00"
    assert {row["kept"] for row in rows} == {"yes", "no"}
    page = Cells()
    page.feed(statement_html(found))
    assert page.tags.count("tr") == 31
    assert any(f"of {len(rows)} windows kept" in text for text in page.texts)
    hostile = made.service.statement("provider", LABELS[1], "2026-11")
    page = Cells()
    page.feed(statement_html(hostile))
    assert "b" not in page.tags, "a label is text"
    line = next(csv.DictReader(io.StringIO(statement_csv(hostile))))
    assert line["label"] == f"'{LABELS[1]}", "and no formula"


def test_the_command_writes_both_files(shop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for role, token in TOKENS.items():
        monkeypatch.setenv(f"TEST_{role.upper()}", token)
    service = shop[0].service
    vars(service)["close"] = lambda: None  # the shop is used on
    environ = {"FAIRSYNC_TOKEN": TOKENS["report"], "COLUMNS": "200"}
    with running(service, make_settings(tokens=True)) as server:

        def run(label: str, month: str, **environ: str) -> Any:
            given = ["statement", server.url, "--attribute", "provider", "--label", label, "--month", month]
            return CliRunner().invoke(app, [*given, "--out", str(tmp_path)], env=environ)

        done = run("acme", "2026-11", **environ)
        assert done.exit_code == 0, done.output
        assert "of 30 windows kept" in done.output
        assert sorted(path.name for path in tmp_path.iterdir()) == ["acme-2026-11.csv", "acme-2026-11.html"]
        assert "acme" in (tmp_path / "acme-2026-11.html").read_text()
        unknown = run("acmee", "2026-11", **environ)
        assert unknown.exit_code == 1
        assert "has no label 'acmee'" in unknown.output
        refused = run("acme", "2026-11", FAIRSYNC_TOKEN="")
        assert refused.exit_code == 1
        assert "token" in refused.output
        assert len(list(tmp_path.iterdir())) == 2
    del vars(service)["close"]


def test_the_archive_survives_backup_and_restore(shop: Any, tmp_path: Path) -> None:
    from fairsync.ledger.backup import back_up, restore

    made, _ = shop
    found = made.service.statement("provider", "acme", "2026-11")
    back_up(made.ledger.database.path, tmp_path / "copy.db")
    restore(tmp_path / "copy.db", tmp_path / "restored.db")
    with closing(SqlLedger(tmp_path / "restored.db", None)) as ledger:
        again = make_statement(ledger, made.catalog, "retrieved", "provider", "acme", "2026-11", found.made_at)
    assert again == found
