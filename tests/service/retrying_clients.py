"""Clients that retry until every call is answered, and record what they received."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import ExitStack
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.errors import BackendUnavailableError
from fairsync.service.client import Client
from fairsync.service.schema import ImpressionReport
from service.service_process import LABELS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from fairsync.ledger import Totals


class RetryingClients:
    """Threads that retrieve candidates, repeat earlier requests and report impressions, each call until it succeeds.

    Parameters
    ----------
    urls
        Addresses of the replicas. A call goes to one after another, so that most repeats meet another replica.

    Attributes
    ----------
    received : dict
        (ids, groups) of each request, by its id.
    impressions : Counter
        Items of each group in the acknowledged reports, each of which is sent twice.
    refused : Counter
        Failed calls, by their error.
    """

    def __init__(self, *urls: str, name: str = "", threads: int = 3, pause: float = 0.0) -> None:
        self.received: dict[str, tuple[list[Any], list[Any]]] = {}
        self.impressions, self.refused, self.calls = Counter[str](), Counter[str](), 0
        self.failures: list[BaseException] = []
        self._urls, self._name, self._pause, self._stop = urls, name, pause, threading.Event()
        self._lock, self._given_up = threading.Lock(), threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(mine,), daemon=True) for mine in range(threads)]

    def __enter__(self) -> RetryingClients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._stop.set()
        if kind is not None:  # the test has failed, and the service may never answer
            self._given_up.set()
            return
        for thread in self._threads:
            thread.join(120)
        assert not any(thread.is_alive() for thread in self._threads), "a client still waits for an answer"
        assert not self.failures, self.failures
        assert not [words for words in self.refused if "mistake" in words], self.refused

    def _work(self, mine: int) -> None:
        rng, number = np.random.default_rng(mine), 0
        try:
            with ExitStack() as stack:
                clients = [stack.enter_context(Client(url, attempts=1, timeout=30.0)) for url in self._urls]
                turns = cycle(clients[mine % len(clients) :] + clients[: mine % len(clients)])
                while not self._stop.is_set():
                    names = [f"{self._name}{mine} {number} {i}" for i in range(int(rng.integers(1, 4)))]
                    self._call(turns, names, number, rng)
                    number += 1
                    self._stop.wait(self._pause)
        except BaseException as error:
            self.failures.append(error)

    def _call(self, clients: Iterator[Client], names: Sequence[str], number: int, rng: np.random.Generator) -> None:
        users = rng.normal(size=(len(names), 8)) + np.eye(8)[0] * 2.0
        found = self._retry(clients, lambda client: client.retrieve(users, request_ids=names))
        answers = dict(zip(names, zip(found.ids.tolist(), found.groups.tolist(), strict=True), strict=True))
        with self._lock:
            self.received.update(answers)
        if number % 5 == 0:  # long after the first answer, when that process may have been killed
            with self._lock:
                earlier = list(self.received)[-200::20]
            other = np.ones((len(earlier), 8))
            again = self._retry(clients, lambda client: client.retrieve(other, request_ids=earlier))
            for name, ids, groups in zip(earlier, again.ids.tolist(), again.groups.tolist(), strict=True):
                assert (ids, groups) == self.received[name], f"{name} got two different answers"
        if number % 2 == 0:
            reports = [ImpressionReport(request_id=name, items=answers[name][0][: number % 3 + 1]) for name in names]
            for _ in range(2):
                self._retry(clients, lambda client: client.impressions(reports))
            with self._lock:
                for report in reports:
                    self.impressions.update(answers[report.request_id][1][: len(report.items)])

    def _retry(self, clients: Iterator[Client], call: Callable[[Client], Any]) -> Any:
        while True:
            try:
                answer = call(next(clients))
            except BackendUnavailableError as error:
                with self._lock:
                    self.refused[str(error)[:70]] += 1
                if self._given_up.wait(0.1):
                    raise
            else:
                with self._lock:
                    self.calls += 1
                return answer


def check_counts(
    totals_list: Sequence[Totals], *clients: RetryingClients, lost_leases: bool = False
) -> Mapping[str, int]:
    """Check that a ledger has counted exactly what clients have received. Returns the exposures.

    Leases that a server has lost in a crash are settled without their requests, which were granted again.
    """
    received = [groups for one in clients for _, groups in one.received.values()]
    counts = Counter(label for groups in received for label in groups)
    impressions = sum((one.impressions for one in clients), Counter())
    requests = sum(one.requests for one in totals_list)
    assert requests == len(received) or (lost_leases and requests < len(received)), (requests, len(received))
    assert _by_label(np.sum([one.exposures for one in totals_list], axis=0)) == {
        label: counts[label] for label in LABELS
    }
    reported = [one.impressions for one in totals_list if one.impressions is not None]
    assert _by_label(np.sum(reported, axis=0)) == {label: impressions[label] for label in LABELS}
    return counts


def _by_label(counts: Any) -> dict[str, int]:
    return dict(zip(LABELS, counts.tolist(), strict=True))
