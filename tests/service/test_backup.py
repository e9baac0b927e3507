"""A backup of a running service restores the same counts, promises, prices and past windows."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from fairsync.cli import app
from fairsync.errors import RefusedError
from fairsync.ledger import SqlLedger
from fairsync.service.client import Client
from fairsync.service.schema import PromiseRecord, WindowRecord
from postgres_server import PostgresServer
from service.retrying_clients import RetryingClients, check_counts
from service.service_process import K, ServiceProcess, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Return the URL of a ledger."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/exposures.db"
        return
    with PostgresServer() as server:
        yield server.url


def ledger_in(url: str) -> SqlLedger:
    return SqlLedger(url, 3, shared=url.startswith("postgresql"))


def run(*arguments: object) -> Any:
    given = [str(argument) for argument in arguments]
    return CliRunner().invoke(app, ["ledger", *given], env={"COLUMNS": "200", "NO_COLOR": "1"})


def prices_of(client: Client) -> dict[Any, float]:
    return {one.group: one.price for one in client.groups()}


def state(url: str) -> dict[str, Any]:
    """Return the state that a restored service must have."""
    with Client(url, timeout=60) as client:
        promises, prices = client.promises(), prices_of(client)
        past = [msgspec.to_builtins(one) for one in client.past()]
    counts = {one.id: (one.group, one.floor, one.window, one.exposures) for one in promises}
    return {"promises": counts, "past": past, "prices": prices}


def make_past_window(url: str) -> str:
    """Make a promise and wait until its window has ended. Returns the id of the promise."""
    with Client(url, timeout=60) as client:
        made = make_short_promise(client)
        wait_until(lambda: made in [one.promise for one in client.past()])
    return made


def make_short_promise(client: Client) -> str:
    """Make a promise for the shortest window in which it arrives and can be kept. Returns its id."""
    for doublings in range(8):
        now = datetime.now(UTC)
        end = now + timedelta(seconds=0.5 * 2**doublings)
        window = WindowRecord(every="campaign", start=now.isoformat(), end=end.isoformat())
        with contextlib.suppress(RefusedError):  # a slow machine, on which the window has ended when the call arrives
            return client.make_promise(PromiseRecord(group="books", floor=1, window=window)).id
    raise AssertionError("no window was long enough")


def make_price(url: str, clients: RetryingClients) -> None:
    """Make requests one after another until wine has a price, and note them with those of clients that have ended.

    In a short window its target can be 0, and so is its price until the next window has had some requests.
    """
    with Client(url, timeout=60) as client:
        for number in range(1000):
            if prices_of(client)["wine"] < 0:
                return
            found = client.retrieve(np.ones((1, 8)), request_ids=[f"price {number}"])
            clients.received[f"price {number}"] = found.ids[0].tolist(), found.groups[0].tolist()
    raise AssertionError("wine got no price")


def test_a_backup_of_a_running_service_is_restored(tmp_path: Path, url: str) -> None:
    copy = tmp_path / "backup" / "copy.db"
    copy.parent.mkdir()
    with ServiceProcess(tmp_path, f'[ledger]\nurl = "{url}"\n') as service:
        service.start()
        with RetryingClients(service.url) as clients:
            wait_until(lambda: len(clients.received) > 100)
            ended = make_past_window(service.url)
        make_price(service.url, clients)
        service.stop()
        service.start()
        before = state(service.url)
        done = run("backup", service.config, copy)
        assert done.exit_code == 0, done.output
        assert f"{len(clients.received):,} requests" in done.output
        with RetryingClients(service.url, name="later") as later:
            wait_until(lambda: len(later.received) > 40)
        assert state(service.url) != before
        refused = run("restore", service.config, copy)
        assert refused.exit_code == 1
        assert "in use by another process" in refused.output
        service.kill()
        done = run("restore", service.config, copy)
        assert done.exit_code == 0, done.output
        assert "the replaced ledger is " in done.output
        service.start()
        assert state(service.url) == before
        assert before["prices"]["wine"] < 0
        assert ended in [one["promise"] for one in before["past"]]
        service.kill()
        with ledger_in(url) as ledger:
            check_counts([*ledger.past(), ledger.totals()], clients)


def test_backups_under_load_are_consistent(tmp_path: Path, url: str) -> None:
    """Every copy is a snapshot of the ledger: it has all earlier answers, and its counts agree."""
    with ServiceProcess(tmp_path, f'[ledger]\nurl = "{url}"\n') as service:
        service.start()
        with RetryingClients(service.url) as clients:
            for number in range(3):
                wait_until(lambda: len(clients.received) > 40 * (number + 1))  # noqa: B023
                copy, answered = tmp_path / f"copy {number}.db", list(clients.received)
                done = run("backup", service.config, copy)
                assert done.exit_code == 0, done.output
                with SqlLedger(copy, 3) as ledger:
                    totals_list = [*ledger.past(), ledger.totals()]
                    requests = sum(one.requests for one in totals_list)
                    assert sum(int(one.exposures.sum()) for one in totals_list) == K * requests
                    assert requests >= len(answered)
                    assert set(ledger.answers(answered)) == set(answered)


def test_a_backup_that_cannot_be_made_or_restored_is_refused_with_a_reason(tmp_path: Path) -> None:
    service = ServiceProcess(tmp_path)
    assert "there is no file" in run("backup", service.config, tmp_path / "copy.db").output
    with SqlLedger(tmp_path / "exposures.db", 3):
        assert "another name" in run("backup", service.config, tmp_path / "exposures.db").output
    assert "make it first" in run("backup", service.config, tmp_path / "nowhere" / "copy.db").output
    (tmp_path / "text.db").write_text("no ledger at all" * 1000)
    held = (tmp_path / "exposures.db").read_bytes()
    refused = run("restore", service.config, tmp_path / "text.db")
    assert refused.exit_code == 1
    assert "damaged or no ledger" in refused.output
    assert (tmp_path / "exposures.db").read_bytes() == held
