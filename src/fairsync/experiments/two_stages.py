"""The paper's Figure 1(b): exposures after the second stage are limited by those after the first."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow
from scipy.stats import pearsonr

from fairsync.errors import InvalidInputError
from fairsync.experiments.exhibit import Exhibit, ExhibitTable
from fairsync.experiments.experiment import Experiment, Lab, WorkStep
from fairsync.experiments.plot import COLOURS
from fairsync.policies import NoPolicy, Uncalibrated
from fairsync.report.plot import GREY, tidy
from fairsync.retriever import FairRetriever

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.experiments.reproduction_setting import Setting
    from fairsync.experiments.trials import Trial
    from fairsync.policies import Policy, Terms

# Of the equal share that stage 2 can give: up to it stage 1 decides, beyond it the slots of stage 2 do.
_SHARES = (1 / 16, 1 / 8, 1 / 4, 3 / 8, 1 / 2, 3 / 4, 1.0, 1.5, 2.0)
_QUICK_SHARES = (1 / 8, 1 / 2, 1.0, 2.0)

_WORDS = (
    "Stage 1 retrieves K candidates with {model}. A rule regulates what it finds, as in the paper, which does not say"
    " which: groups below a target come first, and the quarter of groups that the model exposes least are held at it."
    " Stage 2 is an oracle: of the K it shows each user the {shown} that make the least exposed group as well"
    " exposed as can be (exact, by maximum flow); what it cannot reach, no ranker can. Below the dotted line, an equal"
    " share of all that stage 2 shows, stage 1 is what limits it. Correlation over the points of the rule:"
    " {correlations}."
)


class Regulated(Uncalibrated):
    """Prefers groups below their floor, and caps some of them at it (up to one batch)."""

    name = "regulated"

    def __init__(self, held: NDArray[np.bool_]) -> None:
        self.held = held

    def decide(self, terms: Terms, exposures: NDArray[np.int64], served: int) -> NDArray[np.float64]:
        """Return the prices of Uncalibrated, and mask capped groups that reached their floor."""
        return np.where(self.held & (exposures >= terms.floors), np.inf, super().decide(terms, exposures, served))


def best_minimum(groups: NDArray[np.integer[Any]], n_groups: int, shown: int) -> int:
    """Return the largest minimum exposure over groups if each request shows ``shown`` of its candidates.

    A minimum m is feasible if and only if a flow sends m units from requests (at most ``shown`` from each) through the
    candidates to each group. The largest m is found by bisection.

    Parameters
    ----------
    groups
        (n, k) The group of each candidate of each request.
    n_groups
        Number of groups, including those without a candidate.
    shown
        Number of candidates of a request that are shown.

    Examples
    --------
    Both requests have candidates of group 0, one has a candidate of group 1.

    >>> best_minimum(np.array([[0, 0, 1], [0, 0, 0]]), n_groups=2, shown=1)
    1
    """
    # Requests with the same candidates by group are merged into one node, whose flow can be divided among them.
    kinds, counts = np.unique(np.sort(groups, axis=1), axis=0, return_counts=True)
    pairs, offered = np.unique(
        np.stack([np.repeat(np.arange(len(kinds)), kinds.shape[1]), kinds.ravel()]), axis=1, return_counts=True
    )
    source, sink = len(kinds) + n_groups, len(kinds) + n_groups + 1
    tails = np.concatenate([np.full(len(kinds), source), pairs[0], len(kinds) + np.arange(n_groups)])
    heads = np.concatenate([np.arange(len(kinds)), len(kinds) + pairs[1], np.full(n_groups, sink)])

    def can_have(least: int) -> bool:
        limits = np.concatenate([shown * counts, offered * counts[pairs[0]], np.full(n_groups, least)])
        network = csr_array((limits.astype(np.int32), (tails, heads)), shape=(sink + 1, sink + 1))
        return bool(maximum_flow(network, source, sink).flow_value == least * n_groups)

    low, high = 0, len(groups) * shown // n_groups
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if can_have(middle) else (low, middle - 1)
    return low


def _model(setting: Setting) -> str:
    """Return the paper's model for this figure if it is available."""
    return "youtube-dnn" if "youtube-dnn" in setting.models else setting.analysed


def _shown(k: int) -> int:
    """Return the number of candidates that stage 2 shows."""
    return max(1, min(5, k // 4))


def _equal_share(lab: Lab, k: int) -> int:
    return len(lab.trials.bases.split.test) * _shown(k) // lab.dataset.facts.groups


def _targets(lab: Lab, k: int) -> list[int]:
    """Return the target exposures of groups. The first one, 0, is retrieval without floors."""
    shares = _QUICK_SHARES if lab.setting.quick else _SHARES
    wanted = {max(1, round(share * _equal_share(lab, k))) for share in shares}
    return [0, *sorted(target for target in wanted if target <= lab.floor_at_share(k, 1.0))]


def _least(lab: Lab, k: int, target: int) -> tuple[int, int]:
    """Return the exposures of the least exposed group after stage 1 and after stage 2."""
    setting = lab.setting
    terms = {"model": _model(setting), "seed": setting.seeds[0], "batch_size": setting.batch_size}

    def compute() -> list[int]:
        base = lab.trials.bases.get(_model(setting), setting.seeds[0])
        catalog, users = base.catalog, base.test.users
        policy: Policy = NoPolicy()
        if target:
            plain = lab.trials.outcome(_plain(lab, k)).exposures
            held = np.zeros(catalog.n_groups, dtype=bool)
            held[np.argsort(plain, kind="stable")[: max(1, catalog.n_groups // 4)]] = True
            if catalog.group_sizes[~held].sum() < k:
                raise InvalidInputError(f"K = {k} is more than the items of the better exposed groups: lower --k.")
            policy = Regulated(held)
        retriever = FairRetriever(
            catalog, k=k, floors=target, horizon=len(users), policy=policy, batch_size=setting.batch_size
        )
        found = retriever.retrieve(users).rows
        groups = catalog.group_of[found]
        exposures = np.bincount(groups.ravel(), minlength=catalog.n_groups)
        return [int(exposures.min()), best_minimum(groups, catalog.n_groups, _shown(k))]

    first, second = lab.cell("two-stages", terms | {"k": k, "target": target, "shown": _shown(k)}, compute)
    return first, second


def _plain(lab: Lab, k: int) -> Trial:
    return lab.trial("none", k, lab.setting.floor, model=_model(lab.setting))


def _trials(lab: Lab) -> list[Trial]:
    return [_plain(lab, k) for k in lab.setting.ks]


def _steps(lab: Lab) -> list[WorkStep]:
    return [
        WorkStep(f"two stages on {_model(lab.setting)}, K = {k}, target {target}", partial(_least, lab, k, target))
        for k in lab.setting.ks
        for target in _targets(lab, k)
    ]


def _show(lab: Lab) -> Exhibit:
    points = {k: {target: _least(lab, k, target) for target in _targets(lab, k)} for k in lab.setting.ks}
    regulated = {k: np.array([pair for target, pair in found.items() if target]) for k, found in points.items()}
    correlations = {k: _correlation(pairs) for k, pairs in regulated.items()}
    rows = [
        [k, _shown(k), "none" if target == 0 else str(target), *pair, _equal_share(lab, k), correlations[k]]
        for k, found in points.items()
        for target, pair in found.items()
    ]
    columns = ["K", "shown", "target", "minimum in stage 1", "minimum in stage 2", "equal share", "correlation"]
    text = ", ".join(f"{'–' if r is None else f'{r:.2f}'} at K = {k}" for k, r in correlations.items())
    shown = " or ".join(map(str, sorted({_shown(k) for k in points})))
    words = _WORDS.format(model=_model(lab.setting), shown=shown, correlations=text)
    figure = Figure(figsize=(4.4 * len(points), 3.9), layout="constrained", dpi=150)
    panels = figure.subplots(1, len(points), sharey=True, squeeze=False)[0]
    for axes, (k, found) in zip(panels, points.items(), strict=True):
        pairs = regulated[k][np.lexsort(regulated[k].T[::-1])]
        axes.axhline(_equal_share(lab, k), color="black", linestyle=":", linewidth=1.2, label="equal share of stage 2")
        axes.plot(*pairs.T, color=COLOURS["uncalibrated"], marker="o", linewidth=1.6, label="regulated by a rule")
        axes.plot(*found[0], color=GREY, marker="x", linestyle="", markersize=8, markeredgewidth=2, label="as it is")
        axes.set_title(f"K = {k}, of which {_shown(k)} are shown", loc="left", fontsize=10, weight="bold")
        axes.set_xlabel("exposures of the least exposed group in stage 1")
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        tidy(axes)
    panels[0].set_ylabel("… and in stage 2, at best")
    panels[0].legend(frameon=False, loc="lower right", fontsize=9)
    return Exhibit(EXPERIMENT.name, EXPERIMENT.title, words, ExhibitTable(columns, rows), figure)


def _correlation(pairs: NDArray[np.int64]) -> float | None:
    """Return Pearson's correlation, or None if one side is constant."""
    return float(pearsonr(*pairs.T).statistic) if len(pairs) > 1 and np.ptp(pairs, axis=0).all() else None


EXPERIMENT = Experiment("figure-1b", "Figure 1(b): least exposures in both stages", _show, _trials, _steps)
