"""A promise service whose search waits until the test lets it go."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import httpx

from service.running import Running, small_service

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairsync.catalog import Catalog
    from fairsync.service.promises.promise_service import PromiseService

BODY = {"vectors": [[1.0] * 8]}


class Held:
    """Holds every search until `go` is set, and records the sizes of the batches."""

    def __init__(self, catalog: Catalog | None = None) -> None:
        self.promise_service: PromiseService = small_service(catalog=catalog)
        self.go, self.entered = threading.Event(), threading.Event()
        self.sizes: list[int] = []
        plain = self.promise_service.retrieve

        def retrieve(users: Any, request_ids: Any, k: Any, deliver: Any, **options: Any) -> Any:
            self.entered.set()
            assert self.go.wait(240)
            self.sizes.append(len(users))
            return plain(users, request_ids, k, deliver, **options)

        vars(self.promise_service)["retrieve"] = retrieve


def post(service: Running, answers: list[httpx.Response], **rules: Any) -> threading.Thread:
    """Send a request in a thread."""
    thread = threading.Thread(
        target=lambda: answers.append(httpx.post(f"{service.url}/v1/retrieve", json={**BODY, **rules}, timeout=240))
    )
    thread.start()
    return thread


def until(true: Callable[[], bool]) -> None:
    """Wait for a condition."""
    end = time.monotonic() + 240
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)
