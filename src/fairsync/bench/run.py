"""Run all measurement points in sequence, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from fairsync.errors import FairSyncError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fairsync.bench.measurement_points import MeasurementPoint


@dataclass(frozen=True)
class Measurement:
    """The measurements at a point.

    Attributes
    ----------
    growing : str
        The variable that is scaled in this series.
    point : MeasurementPoint
        The point.
    build_seconds : float
        Time to build the index.
    embeddings_bytes : int
        Memory of the embeddings.
    memory_bytes, peak_bytes : int or None
        Memory of embeddings and index after building, and its peak while building. None if the system does not report
        it. Working memory of a search, some MB, is included.
    ms_batch, ms_single : float
        Milliseconds per request, in batches of 64 and alone.
    times_exact_batch, times_exact_single : float
        Speed relative to ``exact``.
    recall : float
        Fraction of the true best k found under the same prices.
    """

    growing: str
    point: MeasurementPoint
    build_seconds: float
    embeddings_bytes: int
    memory_bytes: int | None
    peak_bytes: int | None
    ms_batch: float
    ms_single: float
    times_exact_batch: float
    times_exact_single: float
    recall: float

    @property
    def memory_ratio(self) -> float | None:
        """Memory divided by that of the embeddings."""
        return None if self.memory_bytes is None else self.memory_bytes / self.embeddings_bytes

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serialisable dictionary."""
        return asdict(self)


def run(
    points: Mapping[str, Sequence[MeasurementPoint]],
    seed: int = 0,
    threads: int = 1,
    watch: Callable[[str, MeasurementPoint], object] | None = None,
) -> list[Measurement]:
    """Measure all points that are not left out. A point in several series is measured once.

    Parameters
    ----------
    points
        The points, from :func:`fairsync.bench.make_points`.
    seed
        Random seed of the generated catalogs.
    threads
        Maximum number of threads per search.
    watch
        A callback that gets the variable and the point before each measurement.
    """
    known: dict[MeasurementPoint, dict[str, Any]] = {}
    figures: list[Measurement] = []
    for growing, series in points.items():
        for point in series:
            if point.left_out:
                continue
            if watch:
                watch(growing, point)
            if point not in known:
                known[point] = _measure(point, seed, threads)
            figures.append(Measurement(growing, point, **known[point]))
    return figures


def _measure(point: MeasurementPoint, seed: int, threads: int) -> dict[str, Any]:
    given = json.dumps({**point.to_dict(), "seed": seed, "threads": threads})
    # Some libraries read these variables only when they are loaded.
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}
    done = subprocess.run(
        [sys.executable, "-m", "fairsync.bench.measure", given],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no error message"])[-1]
        raise FairSyncError(f"{point} could not be measured ({last}): is there enough memory?")
    return dict(json.loads(done.stdout))
