"""Exposure history: the exposures of each group over time, while a retriever answers replayed traffic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.metrics import recall

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from fairsync.catalog.atoms import Atoms
    from fairsync.evaluation.replayed_traffic import ReplayedTraffic
    from fairsync.report import Report
    from fairsync.retriever import FairRetriever

_SAMPLES = 200  # exposures are recorded about this many times over the horizon


@dataclass(frozen=True)
class ExposureHistory:
    """Exposures over time under one policy.

    Attributes
    ----------
    seen : numpy.ndarray
        (n,) The number of requests answered at each sample, from 0 on.
    exposures : numpy.ndarray
        (n, groups) The exposures of each group, or promise, at each sample.
    recall : float
        Recall of all candidate lists, mean over requests.
    """

    seen: NDArray[np.int64]
    exposures: NDArray[np.int64]
    recall: float


def record_exposures(
    retriever: FairRetriever,
    traffic: ReplayedTraffic,
    watch: Callable[[int, Report], object] | None = None,
    exclude: Sequence[Any] | None = None,
    atoms: Atoms | None = None,
) -> ExposureHistory:
    """Answer the requests in small calls, and record the exposures in between.

    Parameters
    ----------
    retriever
        A retriever whose horizon is all requests of the traffic.
    traffic
        The requests.
    watch
        A callback that gets the number of requests answered and the report after each call.
    exclude
        The ids that each request must not get; None for none.
    atoms
        Promises to count, whether the retriever knows them or not; None for what it counts itself.
    """
    n = len(traffic.users)
    batch = retriever.terms.batch_size
    call = batch * max(n // (_SAMPLES * batch), 1)  # whole batches, so that recording adds almost no cost
    seen, exposures = [0], [np.zeros(len(retriever.report().exposures), dtype=np.int64)]
    if atoms is not None:
        exposures = [np.zeros(atoms.membership.n_promises, dtype=np.int64)]
    rows = np.empty((n, retriever.terms.k), dtype=np.int64)
    for start in range(0, n, call):
        here = slice(start, start + call)
        rows[here] = retriever.retrieve(traffic.users[here], None if exclude is None else exclude[here]).rows
        report = retriever.report()
        seen.append(min(start + call, n))
        if atoms is None:
            exposures.append(np.array(list(report.exposures.values())))
        else:
            shown = np.bincount(atoms.atom_of[rows[here].ravel()], minlength=atoms.membership.n_atoms)
            exposures.append(exposures[-1] + atoms.membership.exposures(shown))
        if watch:
            watch(seen[-1], report)
    return ExposureHistory(np.array(seen), np.array(exposures), recall(rows, traffic.targets))
