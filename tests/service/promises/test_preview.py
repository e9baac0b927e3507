"""The least cost of promises on recent requests, against the best plan in hindsight."""

import threading
from typing import Any

import numpy as np
import pytest

from fairsync.catalog import Catalog
from fairsync.errors import CallCancelledError, TooManyPreviewsError
from fairsync.hindsight import hindsight
from fairsync.schedule import ScheduledPromise, Window, check_promise
from fairsync.search import ExactIndex
from fairsync.service.promises import planning
from fairsync.service.promises.preview import RecentRequests
from service.running import small_service


@pytest.fixture
def catalog() -> Catalog:
    rng = np.random.default_rng(0)
    groups = np.repeat(["big", "small", "rare"], [60, 30, 2])
    return Catalog(rng.normal(size=(92, 6)) + np.repeat([[0.5], [0.0], [0.0]], [60, 30, 2], axis=0), groups)


def filled(users: np.ndarray) -> RecentRequests:
    recent = RecentRequests()
    for start in range(0, len(users), 16):
        recent.add(users[start : start + 16, None])
    return recent


def test_it_is_a_lower_bound_near_the_best_plan(catalog: Catalog) -> None:
    users = np.random.default_rng(1).normal(size=(256, 6)) + 0.5
    best = hindsight(catalog, users, k=4, floors={"small": 512, "rare": 64})
    for prices in (np.zeros(3), np.array([0.0, -0.5, -0.1])):
        found = filled(users).estimate(catalog, ExactIndex(catalog), 4, {"small": 2.0, "rare": 0.25}, prices)
        assert found is not None
        assert found.cost * 256 == pytest.approx(best.cost, rel=0.02)
        assert found.cost * 256 <= best.cost * (1 + 1e-9)
        assert found.share == pytest.approx(found.cost * 256 / best.unconstrained_relevance)


def test_without_promises_nothing_is_given_up(catalog: Catalog) -> None:
    found = filled(np.ones((128, 6))).estimate(catalog, ExactIndex(catalog), 4, {}, np.zeros(3))
    assert found is not None
    assert (found.cost, found.share) == (0.0, 0.0)


def test_it_is_unknown_with_few_requests_or_too_much_promised(catalog: Catalog) -> None:
    index, users = ExactIndex(catalog), np.ones((256, 6))
    assert RecentRequests().estimate(catalog, index, 4, {"small": 1.0}, np.zeros(3)) is None
    assert filled(users[:32]).estimate(catalog, index, 4, {"small": 1.0}, np.zeros(3)) is None
    assert filled(users).estimate(catalog, index, 4, {"small": 4.0, "big": 1.0}, np.zeros(3)) is None
    found = filled(users).estimate(catalog, index, 4, {"rare": 3.0}, np.zeros(3))
    assert found is not None, "a group of two items fills two places at most"


def test_a_preview_holds_no_lock_and_few_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    entered, go = threading.Semaphore(0), threading.Event()

    def held(*arguments: Any, **options: Any) -> Any:
        entered.release()
        assert go.wait(60)
        return check_promise(*arguments, **options)

    monkeypatch.setattr(planning, "check_promise", held)
    service, promise = small_service(), ScheduledPromise.of_group("wine", 5, Window.day("UTC"))
    threads = [threading.Thread(target=service.editor.preview, args=(promise,)) for _ in range(2)]
    for thread in threads:
        thread.start()
        assert entered.acquire(timeout=240)
    try:
        is_free = service.scheduler.lock.acquire(timeout=240)
        assert is_free
        service.scheduler.lock.release()
        with pytest.raises(TooManyPreviewsError, match="2 previews"):
            service.editor.preview(promise)
    finally:
        go.set()
        for thread in threads:
            thread.join()
    assert service.editor.preview(promise).feasible


def test_a_preview_that_is_cancelled_ends_and_leaves_its_place() -> None:
    service, promise = small_service(), ScheduledPromise.of_group("wine", 5, Window.day("UTC"))
    for _ in range(3):
        with pytest.raises(CallCancelledError):
            service.editor.preview(promise, is_cancelled=lambda: True)
    assert service.editor.preview(promise).feasible


def test_an_estimate_ends_between_two_searches(catalog: Catalog) -> None:
    searches = []

    def checkpoint() -> None:
        searches.append(1)
        if len(searches) == 2:
            raise CallCancelledError

    recent = filled(np.random.default_rng(1).normal(size=(256, 6)) + 0.5)
    with pytest.raises(CallCancelledError):
        recent.estimate(catalog, ExactIndex(catalog), 4, {"small": 2.0}, np.zeros(3), checkpoint)
