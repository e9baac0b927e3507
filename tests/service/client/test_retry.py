"""Retries: which outcomes are retried, after which delay, and until when."""

from __future__ import annotations

import httpx
import pytest

from fairsync.errors import AccessError, BackendUnavailableError, RefusedError
from fairsync.service.client.request import Request, error_from
from fairsync.service.client.retry import Retry, backoff

READ: Request[bytes] = Request("GET", "/v1/promises", bytes)
WRITE: Request[bytes] = Request("POST", "/v1/promises", bytes, idempotent=False)
BUSY = httpx.Response(503, headers={"retry-after": "3"})


class Clock:
    """A clock that tests turn."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("request_", [READ, WRITE], ids=["idempotent", "not idempotent"])
def test_a_busy_service_is_retried_after_retry_after(request_: Request[bytes], status: int) -> None:
    refusal = {"error": "too_many" if status == 429 else "overloaded", "message": "Not now.", "hint": "Later."}
    busy = httpx.Response(status, headers={"retry-after": "3"}, json=refusal)
    delay = Retry(2, 60.0).delay_after(request_, busy)
    assert delay is not None
    assert 3.0 <= delay <= 3.5


def test_a_call_that_timed_out_is_retried_only_if_it_is_idempotent() -> None:
    """It may have been carried out after all: a promise would be made twice."""
    late = httpx.Response(503, json={"error": "timed_out", "message": "Too slow.", "hint": "Again."})
    assert Retry(2, 60.0).delay_after(READ, late) is not None
    assert Retry(2, 60.0).delay_after(WRITE, late) is None
    assert Retry(2, 60.0).delay_after(WRITE, BUSY) is None, "a proxy answered: nothing is known of the call"


@pytest.mark.parametrize("status", [200, 204, 401, 404, 422, 500])
def test_other_responses_are_final(status: int) -> None:
    assert Retry(5, 60.0).delay_after(READ, httpx.Response(status)) is None


def test_a_status_that_is_an_answer_is_final() -> None:
    ready: Request[bytes] = Request("GET", "/ready", bytes, answer_statuses=(503,))
    assert Retry(5, 60.0).delay_after(ready, BUSY) is None
    assert ready.read(httpx.Response(503, content=b"not ready")) == b"not ready"


def test_a_request_that_may_have_arrived_is_retried_only_if_it_is_idempotent() -> None:
    assert Retry(2, 60.0).delay_after(READ, httpx.ReadError("reset")) is not None
    assert Retry(2, 60.0).delay_after(WRITE, httpx.ReadError("reset")) is None
    assert Retry(2, 60.0).delay_after(WRITE, httpx.ConnectError("refused")) is not None, "it has not arrived"
    with pytest.raises(BackendUnavailableError, match=r"does not answer .*reset.*is it running"):
        WRITE.read(httpx.ReadError("reset"))


def test_the_last_attempt_is_final() -> None:
    retry = Retry(2, 60.0)
    assert retry.delay_after(READ, BUSY) is not None
    assert retry.delay_after(READ, BUSY) is None


def test_connecting_is_tried_until_the_deadline() -> None:
    clock, refused = Clock(), httpx.ConnectError("refused")
    retry, tried = Retry(5, 10.0, clock), 0
    while (delay := retry.delay_after(WRITE, refused)) is not None:
        assert delay <= 0.5
        clock.now += delay
        tried += 1
    assert tried > 20
    assert retry.remaining < 0.5
    assert Retry(1, 10.0, clock).delay_after(WRITE, refused) is None


def test_no_attempt_begins_after_the_deadline() -> None:
    clock = Clock()
    retry = Retry(99, 10.0, clock)
    assert retry.remaining == 10.0
    clock.now += 6.0
    assert retry.remaining == 4.0
    assert retry.delay_after(READ, BUSY) is not None
    clock.now += 2.0
    assert retry.delay_after(READ, BUSY) is None, "the service asks for 3 seconds, and 2 are left"
    clock.now += 5.0
    assert retry.remaining > 0, "HTTPX requires a positive timeout"


def test_backoff_is_exponential_with_jitter_and_has_a_limit() -> None:
    for attempt, longest in ((1, 0.1), (2, 0.2), (3, 0.4), (50, 10.0)):
        delays = [backoff(attempt, None) for _ in range(200)]
        assert 0.5 * longest <= min(delays) < 0.6 * longest
        assert 0.9 * longest < max(delays) <= longest
    assert backoff(1, "soon") <= 0.1, "a Retry-After that is not a number of seconds is ignored"


def test_errors_by_status() -> None:
    body = b'{"error": "busy", "message": "Not now.", "hint": "Later."}'
    assert isinstance(error_from(401, body), AccessError)
    assert isinstance(error_from(503, body), BackendUnavailableError)
    assert isinstance(error_from(500, b"<html>"), BackendUnavailableError)
    refused = error_from(409, body)
    assert isinstance(refused, RefusedError)
    assert (refused.status, refused.error, str(refused)) == (409, "busy", "Not now. Later.")
