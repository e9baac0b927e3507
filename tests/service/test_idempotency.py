"""The idempotency window over HTTP: a repeat gets the same answer or an error of its own, and never counts twice."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING

import httpx
import numpy as np
import pytest

from fairsync.errors import RefusedError
from fairsync.service.client import Client
from fairsync.service.run import make_promise_service
from fairsync.service.schema import ImpressionReport
from fairsync.service.settings import load_settings
from postgres_server import PostgresServer
from service.config_file import configured, over_postgres
from service.running import running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fairsync.ledger import Ledger

# Of some dozen bytes each, only a few answers are saved.
WINDOW = "[ledger]\nanswers_bytes = 1000\n"


class Replicas:
    """Services in threads over one ledger."""

    def __init__(self, config: Path, number: int, stack: ExitStack) -> None:
        self.clients: list[Client] = []
        for _ in range(number):
            promise_service = make_promise_service(load_settings(config, {}))
            self.ledger: Ledger = promise_service.coordinator.ledger
            stack.callback(self.ledger.close)
            self.url = stack.enter_context(running(promise_service)).url
            self.clients.append(stack.enter_context(Client(self.url, attempts=1, timeout=60)))

    def requests(self) -> int:
        return sum(one.requests for one in [*self.ledger.past(), self.ledger.totals()])


@pytest.fixture(params=["sqlite", "postgres"])
def replicas(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Replicas]:
    """Return one service over SQLite, or two over Postgres."""
    config = configured(tmp_path)
    config.write_text(config.read_text().replace("[ledger]\n", WINDOW))
    with ExitStack() as stack:
        if request.param == "postgres":
            over_postgres(config, stack.enter_context(PostgresServer()))
        yield Replicas(config, 1 if request.param == "sqlite" else 2, stack)


def test_a_repeat_gets_the_same_answer_until_it_expires_and_then_an_error(replicas: Replicas) -> None:
    first, other = replicas.clients[0], replicas.clients[-1]
    user, another = np.eye(8)[:1], np.eye(8)[1:2]
    answer = first.retrieve(user, request_ids=["a"])
    assert other.retrieve(another, request_ids=["a"]).ids.tolist() == answer.ids.tolist()
    assert replicas.requests() == 1
    for number in range(4):  # old answers are deleted once per thousand new ones
        first.retrieve(np.ones((500, 8)), request_ids=[f"{number} {i}" for i in range(500)])
    for client in replicas.clients:
        with pytest.raises(RefusedError, match="'a' was answered and counted too long ago") as refused:
            client.retrieve(user, request_ids=["a"])
        assert (refused.value.status, refused.value.error) == (410, "expired")
        with pytest.raises(RefusedError):
            client.retrieve(np.ones((2, 8)), request_ids=["new", "a"])
        assert client.ready(), "it is the caller's mistake"
    assert replicas.requests() == 2001, "neither a second search, nor one for the rest of the call"
    raw = httpx.post(f"{replicas.url}/v1/retrieve", json={"vectors": [[1.0] * 8], "request_ids": ["a"]}, timeout=60)
    assert (raw.status_code, raw.headers["content-type"]) == (410, "application/problem+json")
    assert "retry-after" not in raw.headers
    assert raw.json()["error"] == "expired"
    other.retrieve(user, request_ids=["new"])
    assert replicas.requests() == 2002
    # Impressions of a request whose answer is no longer saved still count, once.
    report = ImpressionReport(request_id="a", items=answer.ids[0].tolist())
    assert [client.impressions([report]).counted for client in (first, other)] == [3, 0]


def test_an_expired_request_does_not_fail_the_calls_that_are_searched_with_it(replicas: Replicas) -> None:
    client = replicas.clients[0]
    for number in range(4):
        client.retrieve(np.ones((500, 8)), request_ids=[f"{number} {i}" for i in range(500)])
    with httpx.Client(base_url=replicas.url, timeout=60) as http, ThreadPoolExecutor(16) as threads:

        def ask(name: str) -> int:
            return http.post("/v1/retrieve", json={"vectors": [[1.0] * 8], "request_ids": [name]}).status_code

        names = [name for turn in range(30) for name in ("0 0", f"later {turn}")]
        assert list(threads.map(ask, names)) == [410, 200] * 30
    assert replicas.requests() == 2030
