"""Operations: what one caller does in threads leaves threads for the others."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx

from service.running import TOKENS, make_settings, running, small_service

if TYPE_CHECKING:
    import pytest


def test_a_caller_cannot_occupy_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    for role, token in TOKENS.items():
        monkeypatch.setenv(f"TEST_{role.upper()}", token)
    service, held, began = small_service(), threading.Event(), threading.Semaphore(0)
    record = service.record_impressions

    def slow(*arguments: Any) -> Any:
        began.release()
        assert held.wait(60)
        return record(*arguments)

    vars(service)["record_impressions"] = slow
    settings = make_settings({"request_seconds": 60.0}, tokens=True)
    with running(service, settings) as one, ThreadPoolExecutor(60) as clients:
        body = {"reports": [{"request_id": "a", "items": ["0"]}]}

        def call(role: str, method: str, path: str, body: Any = None) -> httpx.Response:
            headers = {"authorization": f"Bearer {TOKENS[role]}"}
            return httpx.request(method, f"{one.url}{path}", json=body, headers=headers, timeout=60)

        flood = [clients.submit(call, "report", "POST", "/v1/impressions", body) for _ in range(50)]
        try:
            for _ in range(8):
                assert began.acquire(timeout=240)
            assert not began.acquire(timeout=0.5), "the others wait for their turn"
            assert clients.submit(call, "admin", "GET", "/v1/past").result(30).status_code == 200
        finally:
            held.set()
        assert {answer.result().status_code for answer in flood} == {200}
