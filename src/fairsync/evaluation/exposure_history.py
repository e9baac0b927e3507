"""The same traffic under several policies, followed as it goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairsync.evaluation.rows import rows_of
from fairsync.metrics import recall
from fairsync.retriever import FairRetriever

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from fairsync.catalog import Catalog
    from fairsync.evaluation.replayed_traffic import ReplayedTraffic
    from fairsync.report import Report

_READINGS = 200  # of the exposures, over the horizon


@dataclass(frozen=True)
class ExposureHistory:
    """One policy's way through the requests.

    Attributes
    ----------
    seen : numpy.ndarray
        (n,) numbers of requests after which exposures were read; 0 first.
    exposures : numpy.ndarray
        (n, groups) what each group had by then.
    recall : float
        Share of what users went on to take that was among their candidates, mean over requests.
    """

    seen: NDArray[np.int64]
    exposures: NDArray[np.int64]
    recall: float


def record_exposures(
    retriever: FairRetriever, traffic: ReplayedTraffic, watch: Callable[[int, Report], object] | None = None
) -> ExposureHistory:
    """Feed the requests in small calls, and read the exposures in between.

    Parameters
    ----------
    retriever
        Its horizon is all requests of the traffic.
    traffic
        The requests.
    watch
        Called after each call with the number of requests answered and the report.
    """
    catalog, n = retriever.catalog, len(traffic.users)
    batch = retriever.terms.batch_size
    call = batch * max(n // (_READINGS * batch), 1)  # whole batches, so that following costs next to nothing
    seen, exposures = [0], [np.zeros(catalog.n_groups, dtype=np.int64)]
    rows = np.empty((n, retriever.terms.k), dtype=np.int64)
    for start in range(0, n, call):
        here = slice(start, start + call)
        rows[here] = rows_of(catalog, retriever.retrieve(traffic.users[here]).ids)
        report = retriever.report()
        seen.append(min(start + call, n))
        exposures.append(np.array(list(report.exposures.values())))
        if watch:
            watch(seen[-1], report)
    return ExposureHistory(np.array(seen), np.array(exposures), recall(rows, traffic.targets))


def typical_floor(catalog: Catalog, past: NDArray[np.float32], k: int, horizon: int) -> int:
    """Return what a group in the middle gets without floors, judged by past requests, in round figures.

    It never exceeds half of what could be promised to everyone.

    Examples
    --------
    >>> from fairsync.catalog import Catalog
    >>> catalog = Catalog(np.eye(3), ["a", "b", "c"])
    >>> typical_floor(catalog, np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0]]), k=1, horizon=60)
    10
    """
    plain = FairRetriever(catalog, k=k, horizon=len(past), policy="none")
    plain.retrieve(past)
    middle = float(np.median(list(plain.report().exposures.values()))) * horizon / len(past)
    possible = min(horizon * k // catalog.n_groups, horizon * min(k, int(catalog.group_sizes.min())))
    return int(min(max(float(f"{middle:.1g}"), 1.0), possible // 2))
