"""All points, one after another, each in a process of its own."""

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
    """What was measured at a point.

    Attributes
    ----------
    growing : str
        What grows in this series.
    point : MeasurementPoint
        Where.
    build_seconds : float
        Time to build the index.
    embeddings_bytes : int
        Of the embeddings alone.
    memory_bytes, peak_bytes : int or None
        Embeddings and index: once built, and the most while building. None where the system does not say. What any
        search takes for itself, some MB, is in it.
    ms_batch, ms_single : float
        Milliseconds per request, 64 at a time and alone.
    times_exact_batch, times_exact_single : float
        How many times as fast as ``exact``.
    recall : float
        Share of the true best k under the same prices.
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
        """Memory in multiples of the embeddings."""
        return None if self.memory_bytes is None else self.memory_bytes / self.embeddings_bytes

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def run(
    points: Mapping[str, Sequence[MeasurementPoint]],
    seed: int = 0,
    threads: int = 1,
    watch: Callable[[str, MeasurementPoint], object] | None = None,
) -> list[Measurement]:
    """Measure all points that are not left out; one that is in several series is measured once.

    Parameters
    ----------
    points
        From :func:`fairsync.bench.make_points`.
    seed
        Of the generated catalogs.
    threads
        At most so many for each search.
    watch
        Called before each point.
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
    # Set before any library is loaded: some look only then.
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}
    done = subprocess.run(
        [sys.executable, "-m", "fairsync.bench.measure", given],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no word"])[-1]
        raise FairSyncError(f"{point} could not be measured ({last}): is there enough memory?")
    return dict(json.loads(done.stdout))
