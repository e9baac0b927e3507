"""The paper's figure on inference time: the overhead of prices by batch size."""

from __future__ import annotations

from functools import partial
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias

from matplotlib.figure import Figure

from fairsync.experiments.batch_size import batch_sizes
from fairsync.experiments.compared_methods import make_method
from fairsync.experiments.exhibit import Exhibit, ExhibitTable
from fairsync.experiments.experiment import Experiment, Lab, WorkStep
from fairsync.experiments.plot import COLOURS, MARKERS, scale_by_doubling
from fairsync.report.plot import tidy
from fairsync.retriever import FairRetriever
from fairsync.search import ExactIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

Seconds: TypeAlias = "dict[str, list[float]]"
"""{method: seconds per user in each round}."""

_METHODS = ("fairsync", "guaranteed")
_ROUNDS, _QUICK_ROUNDS = 5, 2
# Prices are zero in the first batch, so that several are needed.
_LEAST_REQUESTS, _LEAST_BATCHES = 384, 4

_WORDS = (
    "Time to retrieve the candidates of one user with {model}, when users come in batches of B and prices change"
    " after each; settling the prices is part of the time. Retrieval without floors is asked the same batches on the"
    " same index, in turns: its time is the base. Shown are medians of {rounds} rounds, each from the first request"
    " on; ratios are taken within a round, so that other load on the machine affects both sides. All searches"
    " are exact and run on the processor of this machine; the paper used a GPU."
)


def time_in_turns(
    make: Mapping[str, Callable[[], FairRetriever]], users: NDArray[np.floating[Any]], batch_size: int, rounds: int
) -> Seconds:
    """Return the seconds per user of several retrievers, which take turns batch by batch.

    Parameters
    ----------
    make
        {name: function that makes a new retriever}.
    users
        User vectors, in order of arrival.
    batch_size
        Requests per call.
    rounds
        Number of rounds, each with new retrievers. A further round for warming up is not counted.

    Examples
    --------
    >>> import numpy as np
    >>> from fairsync import Catalog
    >>> catalog, users = Catalog(np.eye(4), ["a", "a", "b", "b"]), np.ones((6, 4))
    >>> terms = {"k": 2, "floors": 1, "horizon": 6}
    >>> policies = ("none", "guaranteed")
    >>> make = {name: lambda name=name: FairRetriever(catalog, policy=name, **terms) for name in policies}
    >>> taken = time_in_turns(make, users, batch_size=3, rounds=2)
    >>> [(name, len(times), min(times) > 0) for name, times in taken.items()]
    [('none', 2, True), ('guaranteed', 2, True)]
    """
    batches = [users[start : start + batch_size] for start in range(0, len(users), batch_size)]
    seconds: Seconds = {name: [] for name in make}
    for number in range(rounds + 1):
        retrievers = [(name, maker()) for name, maker in make.items()]
        taken = dict.fromkeys(make, 0.0)
        for batch in batches if number else batches[:2]:
            for name, retriever in retrievers:
                start = perf_counter()
                retriever.retrieve(batch)
                taken[name] += perf_counter() - start
            retrievers.append(retrievers.pop(0))  # the first one has colder caches
        if number:
            for name in make:
                seconds[name].append(taken[name] / len(users))
    return seconds


def _measured(lab: Lab, k: int, size: int) -> Seconds:
    setting, floor = lab.setting, lab.binding_floor(k)
    rounds = _QUICK_ROUNDS if setting.quick else _ROUNDS
    terms = {"model": setting.analysed, "seed": setting.seeds[0], "floor": floor, "rounds": rounds}

    def compute() -> Seconds:
        base = lab.trials.bases.get(setting.analysed, setting.seeds[0])
        users, index = base.test.users, ExactIndex(base.catalog)

        def make(method: str) -> FairRetriever:
            trial = lab.trial(method, k, floor)
            policy = make_method(method, lab.trials.tuned(trial), lab.trials.scale(trial))
            return FairRetriever(
                base.catalog, k=k, floors=floor, horizon=len(users), policy=policy, batch_size=size, index=index
            )

        asked = users[: max(_LEAST_REQUESTS, _LEAST_BATCHES * size)]
        return time_in_turns({name: partial(make, name) for name in ("none", *_METHODS)}, asked, size, rounds)

    seconds: Seconds = lab.cell("inference-time", terms | {"k": k, "batch_size": size}, compute)
    return seconds


def _steps(lab: Lab) -> list[WorkStep]:
    return [
        WorkStep(f"time per user, K = {k}, B = {size}", partial(_measured, lab, k, size))
        for k in lab.setting.ks
        for size in batch_sizes(lab.setting)
    ]


def _show(lab: Lab) -> Exhibit:
    sizes = batch_sizes(lab.setting)
    measured = {k: {size: _measured(lab, k, size) for size in sizes} for k in lab.setting.ks}
    rows: list[list[str | int | float | None]] = []
    for k, found in measured.items():
        for size, seconds in found.items():
            row: list[str | int | float | None] = [k, size, 1000 * median(seconds["none"])]
            for method in _METHODS:
                row += [1000 * median(seconds[method]), ratio(seconds, method)]
            rows.append(row)
    columns = ["K", "B", "base ms", *(f"{method} {unit}" for method in _METHODS for unit in ("ms", "÷ base"))]
    figure = Figure(figsize=(4.4 * len(measured), 5.6), layout="constrained", dpi=150)
    panels = figure.subplots(2, len(measured), sharex=True, sharey="row", squeeze=False, height_ratios=[3, 2])
    for at, (k, found) in enumerate(measured.items()):
        top, bottom = panels[:, at]
        for method in ("none", *_METHODS):
            label = "no floors (base)" if method == "none" else method
            _line(top, method, {size: 1000 * median(one[method]) for size, one in found.items()}, label)
        for method in _METHODS:
            _line(bottom, method, {size: ratio(one, method) for size, one in found.items()})
        bottom.axhline(1, color=COLOURS["none"], linestyle="--", linewidth=1.4)
        top.set_title(f"K = {k}", loc="left", fontsize=10, weight="bold")
        bottom.set_xlabel("batch size B")
    for axes in panels[:, 0]:  # panels of a row share the axis
        axes.set_ylim(bottom=0)
    panels[0, 0].set_ylabel("ms per user")
    panels[1, 0].set_ylabel("÷ base")
    panels[0, 0].legend(frameon=False, fontsize=9)
    rounds = len(next(iter(measured[lab.setting.ks[0]].values()))["none"])
    words = _WORDS.format(model=lab.setting.analysed, rounds=rounds)
    return Exhibit(EXPERIMENT.name, EXPERIMENT.title, words, ExhibitTable(columns, rows, digits=3), figure)


def ratio(seconds: Seconds, method: str) -> float:
    """Return the time of a method relative to the base: the median over the rounds.

    Examples
    --------
    >>> ratio({"none": [1.0, 2.0, 1.0], "slow": [2.0, 4.0, 9.0]}, "slow")
    2.0
    """
    return median(mine / base for mine, base in zip(seconds[method], seconds["none"], strict=True))


def _line(axes: Axes, method: str, points: dict[int, float], label: str | None = None) -> None:
    style = "--" if method == "none" else "-"
    axes.plot(
        list(points),
        list(points.values()),
        style,
        color=COLOURS[method],
        marker=MARKERS[method],
        markersize=5.5,
        label=label,
    )
    scale_by_doubling(axes, list(points)[::2])
    tidy(axes)


EXPERIMENT = Experiment("inference-time", "Figure: inference time per user", _show, steps=_steps)
