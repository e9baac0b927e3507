"""Measure one point. It runs in a process of its own, so that its memory is measured alone.

python -m fairsync.bench.measure '{"index": "exact", "items": 10000, ...}'
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.bench.engine_indexes import ENGINE_NAMES, engine_index
from fairsync.bench.measurement_points import DIM, MeasurementPoint
from fairsync.catalog import Catalog
from fairsync.data.synthetic import synthetic
from fairsync.search import ExactIndex, ShardedIndex, make_index

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from fairsync.search import Index

BATCH = 64
_REQUESTS = 256
_SECONDS, _ROUNDS = 1.0, 7  # a timing ends after either limit, but not before three rounds


def measure(point: MeasurementPoint, seed: int) -> dict[str, Any]:
    """Return the measurements. Ratios are relative to `exact` on the same catalog, timed in turns with it."""
    data = synthetic(
        point.items, point.groups, _REQUESTS, DIM, seed, n_past=256, interests=point.interests,
        smallest_share=min(0.00014, 0.1 / point.groups),
    )  # fmt: skip
    catalog = Catalog(data.embeddings, data.groups)
    users = data.users.reshape(_REQUESTS, point.interests, DIM)
    prices = _prices(catalog, users, seed)
    _reset_peak()
    before, started = _memory("VmRSS"), time.perf_counter()
    with _built(point, catalog, data.past_users) as index:
        return _measured(point, catalog, users, prices, index, before, time.perf_counter() - started)


def _measured(
    point: MeasurementPoint,
    catalog: Catalog,
    users: NDArray[np.float32],
    prices: NDArray[np.float64],
    index: Index,
    before: int | None,
    build: float,
) -> dict[str, Any]:
    """Return the measurements of an index, which took some memory and seconds to build."""
    index.search(users[:BATCH], prices, point.k)
    used, peak = _memory("VmRSS"), _memory("VmHWM")
    exact = ExactIndex(catalog)
    batch, base_batch = _fastest([_calls(one, users, prices, point.k, BATCH) for one in (index, exact)])
    single, base_single = _fastest([_calls(one, users, prices, point.k, 1) for one in (index, exact)])
    return {
        "build_seconds": build,
        "embeddings_bytes": catalog.embeddings.nbytes,
        "memory_bytes": _grown(used, before, catalog),
        "peak_bytes": _grown(peak, before, catalog),
        "ms_batch": batch / BATCH * 1e3,
        "ms_single": single * 1e3,
        "times_exact_batch": base_batch / batch,
        "times_exact_single": base_single / single,
        "recall": _recall(index, exact, users, prices, point.k),
    }


@contextlib.contextmanager
def _built(point: MeasurementPoint, catalog: Catalog, past: NDArray[np.float32]) -> Iterator[Index]:
    if point.index in ENGINE_NAMES:
        with engine_index(point.index, catalog) as index:
            yield index
    else:
        yield _build(point, catalog, past)


def _build(point: MeasurementPoint, catalog: Catalog, past: NDArray[np.float32]) -> Index:
    if point.shards > 1:
        return ShardedIndex(catalog, point.shards, point.index)
    index = make_index(point.index, catalog)
    tune = getattr(index, "tune", None)
    if tune:
        tune(past)
    return index


def _prices(catalog: Catalog, users: NDArray[np.float32], seed: int) -> NDArray[np.float64]:
    """Return prices like those of a policy: 0 for the largest group, a subsidy for two groups in three."""
    rng = np.random.default_rng(seed)
    scale = float((users[:32, 0] @ catalog.embeddings[:4096].T).std())
    subsidies = rng.exponential(0.3 * scale, size=catalog.n_groups) * (rng.random(catalog.n_groups) < 2 / 3)
    subsidies[np.argmax(catalog.group_sizes)] = 0.0
    return -subsidies


def _calls(
    index: Index, users: NDArray[np.float32], prices: NDArray[np.float64], k: int, size: int
) -> Callable[[int], object]:
    def call(number: int) -> object:
        start = number * size % (len(users) - size + 1)
        return index.search(users[start : start + size], prices, k)

    return call


def _fastest(calls: list[Callable[[int], object]]) -> list[float]:
    """Return the seconds of each call in its fastest round. The calls take turns."""
    best, spent, turn = [float("inf")] * len(calls), 0.0, 0
    while turn < 3 or (turn < _ROUNDS and spent < _SECONDS * len(calls)):
        for place, call in enumerate(calls):
            started = time.perf_counter()
            call(turn)
            seconds = time.perf_counter() - started
            best[place], spent = min(best[place], seconds), spent + seconds
        turn += 1
    return best


def _recall(index: Index, exact: ExactIndex, users: NDArray[np.float32], prices: NDArray[np.float64], k: int) -> float:
    truth, found = (one.search(users[:BATCH], prices, k).rows for one in (exact, index))
    shared = [len(np.intersect1d(one, other)) for one, other in zip(truth, found, strict=True)]
    return float(np.mean(shared) / truth.shape[1])


def _memory(what: str) -> int | None:
    """Return a memory statistic of this process in bytes, or None if the system has no /proc."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(what))


def _reset_peak() -> None:
    """Reset the peak memory of this process, because generating the catalog is no part of the index."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _grown(now: int | None, before: int | None, catalog: Catalog) -> int | None:
    """Return the bytes of the embeddings plus the growth of memory since then."""
    return None if now is None or before is None else catalog.embeddings.nbytes + max(now - before, 0)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    seed_, threads_ = given.pop("seed"), given.pop("threads")
    import faiss
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    faiss.omp_set_num_threads(threads_)
    with threadpool_limits(threads_):
        print(json.dumps(measure(MeasurementPoint(**given), seed_)))
