"""The audit of promises: every change is in it, with the token's name, and it survives what the promises survive."""

from __future__ import annotations

import json
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from fairsync.coordination.coordinator import Coordinator
from fairsync.coordination.front_end import FrontEnd
from fairsync.errors import FairSyncError
from fairsync.ledger import open_ledger
from fairsync.schedule import Forecast, ScheduledPromise, Window
from fairsync.service.client import Client
from fairsync.service.promises.promise_service import PromiseService
from fairsync.service.schema import PromiseRecord, WindowRecord
from service.running import TOKENS, make_settings, running, small_catalog, small_service

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from fairsync.ledger import Ledger

DAY = ScheduledPromise.of_group("toys", 10, Window.day("UTC"))


@contextmanager
def opened(url: str | Path, n_groups: int, **settings: Any) -> Iterator[Ledger]:
    ledger = open_ledger(url, n_groups, **settings)
    yield ledger
    ledger.close()


def open_service(ledger: Ledger, promises: list[ScheduledPromise], clock: Callable[[], float]) -> PromiseService:
    catalog = small_catalog()
    coordinator = Coordinator(catalog, k=3, floors=0, horizon=1, ledger=ledger, auto_restart=False)
    return PromiseService(FrontEnd(catalog, coordinator), coordinator, promises, Forecast(rate=1.0), clock=clock)


def told(service: PromiseService) -> list[tuple[str, str, str]]:
    """Return by, action and text of all entries, oldest first."""
    return [(one.by, one.action, one.text) for one in reversed(service.audit().entries)]


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres").schema(f"audit_{tmp_path.name}"))
    return {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/a.db"}[request.param]


def test_every_change_is_recorded_with_its_author(url: str) -> None:
    now = datetime(2026, 11, 2, 9, tzinfo=UTC).timestamp()
    with opened(url, 3, shared=True) as ledger:
        service = open_service(ledger, [DAY], lambda: now)
        five, six = (ScheduledPromise.of_group("wine", floor, Window.week("UTC")) for floor in (5, 6))
        made = service.editor.set_promise(five, by="campaigns").id
        service.editor.set_promise(six, made, by="sales")
        service.editor.delete_promise(made, by="campaigns")
        service.items.remove([0])  # no change of a promise
        service.close()
        assert told(service) == [
            ("settings", "made", str(DAY)),
            ("campaigns", "made", str(five)),
            ("sales", "changed", str(six)),
            ("campaigns", "ended", str(six)),
        ]
        latest = service.audit()
        assert (latest.total, latest.complete, latest.damage) == (4, True, [])
        changed = latest.entries[1]
        assert changed.promise == made
        assert (changed.before, changed.after) == (five.to_dict(), six.to_dict())
        assert changed.before_text == str(five)
        assert [one.at for one in latest.entries] == [datetime.fromtimestamp(now, UTC)] * 4


def test_it_goes_on_after_a_restart_and_begins_once(tmp_path: Path) -> None:
    now = datetime(2026, 11, 2, 9, tzinfo=UTC).timestamp()
    for expected in (1, 1):
        with opened(tmp_path / "a.db", 3) as ledger:
            service = open_service(ledger, [DAY], lambda: now)
            assert service.audit().total == expected
    with opened(tmp_path / "b.db", 3) as ledger:  # no promise, no entry
        assert open_service(ledger, [], lambda: now).audit().total == 0


def test_promises_of_a_ledger_without_an_audit_are_found(tmp_path: Path) -> None:
    now = datetime(2026, 11, 2, 9, tzinfo=UTC).timestamp()
    with opened(tmp_path / "a.db", 3) as ledger:
        open_service(ledger, [DAY], lambda: now)
        saved = ledger.load("service")
    assert saved is not None
    with opened(tmp_path / "b.db", 3) as ledger:
        ledger.save("service", saved)
        (entry,) = open_service(ledger, [], lambda: now).audit().entries
    assert (entry.by, entry.action, entry.note) == ("", "found", "made before the audit began")


def test_a_refused_change_leaves_no_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime(2026, 11, 2, 9, tzinfo=UTC).timestamp()
    with opened(tmp_path / "a.db", 3) as ledger:
        service = open_service(ledger, [], lambda: now)
        with pytest.raises(FairSyncError):
            service.editor.set_promise(ScheduledPromise.of_group("wine", 10**12, Window.day("UTC")), by="campaigns")
        before = ledger.save

        def fails(*_: object) -> None:
            raise FairSyncError("the disk is full")

        with monkeypatch.context() as patched:
            patched.setattr(ledger, "save", fails)
            with pytest.raises(FairSyncError, match="disk is full"):
                service.editor.set_promise(DAY, by="campaigns")
        assert ledger.save == before
        assert service.promises() == []
        assert service.audit().total == 0
        service.editor.set_promise(DAY, by="sales")
        assert told(service) == [("sales", "made", str(DAY))]


def test_a_promise_that_runs_out_is_recorded(tmp_path: Path) -> None:
    seconds = [datetime(2026, 11, 2, 9, tzinfo=UTC).timestamp()]
    end = datetime(2026, 11, 4, tzinfo=UTC)
    with opened(tmp_path / "a.db", 3) as ledger:
        service = open_service(ledger, [], lambda: seconds[0])
        service.editor.set_promise(ScheduledPromise.of_group("toys", 10, Window("day", "UTC", end=end)), by="sales")
        seconds[0] = (end + timedelta(hours=1)).timestamp()
        service.refresh()
        latest = service.audit().entries[0]
    assert (latest.by, latest.action, latest.note) == ("", "ended", "its last window is over")


def test_the_api_reads_the_audit_and_cannot_change_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for role, token in TOKENS.items():
        monkeypatch.setenv(f"TEST_{role.upper()}", token)
    promise = PromiseRecord(group="toys", floor=10, window=WindowRecord(every="day"))
    with running(small_service(), make_settings(tokens=True)) as service:
        with Client(service.url, TOKENS["admin"], timeout=60) as admin:
            made = [admin.make_promise(promise).id]
            admin.delete_promise(made[0])
            made.append(admin.make_promise(promise).id)
        with Client(service.url, TOKENS["report"], timeout=60) as reader:
            found = reader.audit()
            assert [(one.by, one.action, one.promise) for one in found.entries] == [
                ("admin", "made", made[1]), ("admin", "ended", made[0]), ("admin", "made", made[0]),
            ]  # fmt: skip
            assert [one.number for one in reader.audit(limit=1).entries] == [3]
            assert [one.number for one in reader.audit(before=3).entries] == [2, 1]
            assert found.complete
        headers = {"authorization": f"Bearer {TOKENS['admin']}"}
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            answer = httpx.request(method, f"{service.url}/v1/audit", headers=headers, json={}, timeout=60)
            assert (answer.status_code, answer.headers["allow"]) == (405, "GET")
        retrieve = {"authorization": f"Bearer {TOKENS['retrieve']}"}
        assert httpx.get(f"{service.url}/v1/audit", headers=retrieve, timeout=60).status_code == 403
        assert httpx.get(f"{service.url}/v1/audit?limit=0", headers=headers, timeout=60).status_code == 422
        assert json.loads(httpx.get(f"{service.url}/v1/audit", headers=headers, timeout=60).text)["total"] == 3
