"""Verdicts on claims, computed from the outcomes of trials, or from the table of an experiment without trials."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np
from scipy.stats import ttest_1samp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from fairsync.experiments.exhibit import ExhibitTable
    from fairsync.experiments.trials import Trial, TrialMeasures

Ruling = Literal["holds", "does not hold", "not comparable", "not run"]

MEASURES = ("recall", "ndcg_of_hits", "hit_rate")
LEVEL = 0.05
"""Level of significance, as in the paper."""
_WITHIN = 0.01  # a smaller share of a measure makes no method less accurate


class TrialResult(NamedTuple):
    """A trial and its outcome."""

    trial: Trial
    outcome: TrialMeasures


@dataclass(frozen=True)
class Verdict:
    """The verdict of a run on a claim.

    Attributes
    ----------
    ruling : str
        ``holds``, ``does not hold``, ``not comparable`` or ``not run``.
    figures : str
        The numbers that support the ruling, or the reason why there are none.
    """

    ruling: Ruling
    figures: str

    @staticmethod
    def of(holds: bool | np.bool_, figures: str) -> Verdict:
        """Return the verdict of a comparison."""
        return Verdict("holds" if holds else "does not hold", figures)


def floors_met(results: Iterable[TrialResult], method: str) -> Verdict:
    """Judge whether all floors are met in every trial of a method."""
    esps = defaultdict(list)
    for trial, outcome in results:
        esps[trial.method].append(outcome.esp)
    mine, plain = esps[method], esps["none"]
    if not mine:
        return Verdict("not comparable", f"no trial of {method}")
    met = sum(esp == 1.0 for esp in mine)
    figures = f"all floors met in {met} of {len(mine)} trials; lowest ESP {min(mine):.1%}"
    return Verdict.of(met == len(mine), figures + (f", without floors {min(plain):.1%}" if plain else ""))


def floors_missed(results: Iterable[TrialResult], methods: Sequence[str]) -> Verdict:
    """Judge whether methods miss floors in every trial in which retrieval without floors misses some."""
    found = list(results)
    figures, held = [], []
    for method in methods:
        pairs = _pairs(found, method, "none")
        cells = [cell for mine, plain in pairs for cell in zip(mine, plain, strict=True)]
        esps = [mine.esp for mine, plain in cells if plain.esp < 1.0]
        if not esps:
            why = "all floors are met without" if cells else "no trials with and without"
            return Verdict("not comparable", f"{why} {method}")
        missed = sum(esp < 1.0 for esp in esps)
        held.append(missed == len(esps))
        figures.append(f"{method} misses floors in {missed} of {len(esps)} cells (ESP {_span(esps, '.1%')})")
    return Verdict.of(all(held), "; ".join(figures) + ", of those where retrieval without floors misses some")


def more_accurate(results: Iterable[TrialResult], method: str, rival: str) -> Verdict:
    """Judge whether a method is significantly better than another in every cell and every measure."""
    pairs = _pairs(results, method, rival)
    if not pairs:
        return Verdict("not comparable", f"no cell with both {method} and {rival}")
    tests = [compare(mine, theirs, measure) for mine, theirs in pairs for measure in MEASURES]
    n, better = len(tests), sum(gain > 0 for gain, _ in tests)
    significant = sum(gain > 0 and p < LEVEL for gain, p in tests)
    figures = f"better in {better} of {n} comparisons, significantly in {significant}; {_recalls(pairs)}"
    return Verdict.of(significant == n, figures)


def as_accurate(results: Iterable[TrialResult], method: str, rivals: Sequence[str]) -> Verdict:
    """Judge whether a method is within a hundredth of others, or not significantly worse, in every cell."""
    found = list(results)
    pairs = [pair for rival in rivals for pair in _pairs(found, method, rival)]
    if not pairs:
        return Verdict("not comparable", f"no cell with {method} and one of {', '.join(rivals)}")
    worse = 0
    for mine, theirs in pairs:
        for measure in MEASURES:
            gain, p = compare(mine, theirs, measure)
            worse += gain < -_WITHIN * _mean(theirs, measure) and p < LEVEL
    n = len(pairs) * len(MEASURES)
    figures = f"significantly lower by more than {_WITHIN:.0%} in {worse} of {n} comparisons; {_recalls(pairs)}"
    return Verdict.of(worse == 0, figures)


def above_at_every_floor(results: Iterable[TrialResult], method: str, rival: str) -> Verdict:
    """Judge whether a method is better than another in every measure at every floor."""
    points = list(_pairs(results, method, rival))
    if not points:
        return Verdict("not comparable", f"no floor at which both {method} and {rival} were tried")
    above = sum(_mean(mine, name) > _mean(theirs, name) for mine, theirs in points for name in MEASURES)
    n = len(points) * len(MEASURES)
    return Verdict.of(above == n, f"above {rival} in {above} of {n} comparisons at {len(points)} points of the curve")


def floors_cost(results: Iterable[TrialResult], method: str) -> Verdict:
    """Judge whether recall is lower at the highest floor than at the lowest, for every k."""
    lines = _lines(results, method, lambda trial: trial.floor)
    if not lines or any(len(line) < 2 for line in lines.values()):
        return Verdict("not comparable", "fewer than two floors were tried")
    figures, held = [], []
    for k, line in sorted(lines.items()):
        low, high = min(line), max(line)
        held.append(line[high][0] < line[low][0])
        figures.append(f"K = {k}: recall {line[low][0]:.2%} at floor {low}, {line[high][0]:.2%} at {high}")
    return Verdict.of(all(held), "; ".join(figures))


def breaks_beyond(results: Iterable[TrialResult], method: str, batch_size: int) -> Verdict:
    """Judge whether all floors are met up to a batch size, and are never all met beyond it."""
    tried = defaultdict(list)
    for trial, outcome in results:
        if trial.method == method:
            tried[trial.batch_size > batch_size].append(outcome.esp)
    if len(tried) < 2:
        return Verdict("not comparable", f"no batch sizes on both sides of {batch_size}")
    small, large = tried[False], tried[True]
    figures = "; ".join(
        f"B {sign} {batch_size}: all floors met in {sum(esp == 1 for esp in esps)} of {len(esps)} trials (ESP"
        f" {_span(esps, '.1%')})"
        for sign, esps in (("≤", small), (">", large))
    )
    return Verdict.of(min(small) == 1 and max(large) < 1, figures)


def falls_then_rises(results: Iterable[TrialResult], method: str, turn: int) -> Verdict:
    """Judge whether every measure is lower at the batch size ``turn`` than at the smallest and the largest."""
    lines = _lines(results, method, lambda trial: trial.batch_size)
    if not lines or any(turn not in line or min(line) == turn or max(line) == turn for line in lines.values()):
        return Verdict("not comparable", f"batch sizes below, at and above {turn} are needed")
    figures, held = [], []
    for k, line in sorted(lines.items()):
        first, last = min(line), max(line)
        held += [line[turn][m] < min(line[first][m], line[last][m]) for m in range(len(MEASURES))]
        recalls = ", ".join(f"{line[b][0]:.2%} at B = {b}" for b in (first, turn, last))
        figures.append(f"K = {k}: recall {recalls}")
    return Verdict.of(all(held), "; ".join(figures))


def met_with_more_recall(results: Iterable[TrialResult], method: str, rivals: Sequence[str]) -> Verdict:
    """Judge whether all floors are met with more recall than other methods have."""
    found = list(results)
    met = floors_met(found, method)
    gaps = {
        rival: [(_mean(mine, "recall"), _mean(theirs, "recall")) for mine, theirs in _pairs(found, method, rival)]
        for rival in rivals
    }
    if met.ruling == "not comparable" or not all(gaps.values()):
        return Verdict("not comparable", f"{method} and {', '.join(rivals)} were not all tried")
    above = all(mine > theirs for pairs in gaps.values() for mine, theirs in pairs)
    own = np.mean([mine for mine, _ in gaps[rivals[0]]])
    others = ", ".join(f"{name} {np.mean([theirs for _, theirs in pairs]):.2%}" for name, pairs in gaps.items())
    return Verdict.of(met.ruling == "holds" and above, f"{met.figures}; recall {own:.2%}, {others}")


def cost_at_most(results: Iterable[TrialResult], method: str, times: float) -> Verdict:
    """Judge whether the cost is at most ``times`` that of the best plan in hindsight, where that is above 0."""
    ratios = [
        ratio for trial, outcome in results if trial.method == method and (ratio := outcome.cost_ratio) is not None
    ]
    if not ratios:
        return Verdict("not comparable", "the floors cost nothing here")
    figures = (
        f"{np.median(ratios):.2f} times hindsight in the middle of {len(ratios)} trials, {max(ratios):.2f} at most"
    )
    return Verdict.of(max(ratios) <= times, figures)


def correlated(table: ExhibitTable, least: float) -> Verdict:
    """Judge whether the correlation of both stages is at least ``least`` for every K."""
    found = {row["K"]: row["correlation"] for row in _rows(table)}
    if not found or None in found.values():
        return Verdict("not comparable", "one of the stages does not vary")
    figures = ", ".join(f"{value:.2f} at K = {k}" for k, value in found.items())
    return Verdict.of(min(found.values()) >= least, f"correlation {figures}")


def as_in_the_extreme_case(table: ExhibitTable, method: str, recall: float) -> Verdict:
    """Judge whether a method meets all floors with the expected recall, in whole percent."""
    [row] = [row for row in _rows(table) if row["Method"] == method]
    figures = f"recall {row['Recall %']:.1f} %, ESP {row['ESP %']:.0f} %"
    return Verdict.of(round(row["Recall %"]) == round(100 * recall) and row["ESP %"] == 100, figures)


def as_fast(table: ExhibitTable, method: str, beyond: int, within: float) -> Verdict:
    """Judge whether a method takes at most ``within`` times the time of the base for all batch sizes above one."""
    ratios = [row[f"{method} ÷ base"] for row in _rows(table) if row["B"] > beyond]
    if not ratios:
        return Verdict("not comparable", f"no batch size beyond {beyond} was timed")
    figures = f"{min(ratios):.2f} to {max(ratios):.2f} times the base for B > {beyond}"
    return Verdict.of(max(ratios) <= within, figures)


def towards_the_needy(table: ExhibitTable) -> Verdict:
    """Judge whether groups that miss their floor without prices rank higher in the dual space at the end."""
    rows = _rows(table)
    last = [row for row in rows if row["requests"] == max(row["requests"] for row in rows)]
    needy = [row for row in last if row["without floors"] < row["due"]]
    if not needy:
        return Verdict("not comparable", f"none of the {len(last)} groups drawn falls short without floors")
    figures = ", ".join(f"{row['group']}: {row['rank']:,.0f} to {row['rank in dual space']:,.0f}" for row in needy)
    nearer = all(row["rank in dual space"] < row["rank"] for row in needy)
    return Verdict.of(nearer, f"mean rank of the best item of groups that fall short without floors: {figures}")


def compare(mine: Sequence[TrialMeasures], theirs: Sequence[TrialMeasures], measure: str) -> tuple[float, float]:
    """Return the mean difference and the p-value of a paired t-test over requests, with seeds pooled."""
    pooled = [np.concatenate([np.array(one.each[measure]) for one in outcomes]) for outcomes in (mine, theirs)]
    difference = pooled[0] - pooled[1]
    if len(difference) < 2 or np.ptp(difference) == 0:  # the test would divide by zero
        return float(difference.mean()), 1.0 if not difference.any() else 0.0
    return float(difference.mean()), float(ttest_1samp(difference, 0.0).pvalue)


Pair: TypeAlias = "tuple[list[TrialMeasures], list[TrialMeasures]]"


def _pairs(results: Iterable[TrialResult], method: str, rival: str) -> list[Pair]:
    """Return pairs of outcomes of two methods under the same terms, one for each seed."""
    cells: dict[tuple[object, ...], dict[str, dict[int, TrialMeasures]]] = defaultdict(lambda: {method: {}, rival: {}})
    for trial, outcome in results:
        terms = (trial.model, trial.k, trial.floor, trial.spread, trial.batch_size, trial.order)
        if trial.method in (method, rival):
            cells[terms][trial.method][trial.seed] = outcome
    pairs = []
    for cell in cells.values():
        seeds = sorted(cell[method].keys() & cell[rival].keys())
        pairs.append(([cell[method][seed] for seed in seeds], [cell[rival][seed] for seed in seeds]))
    return [pair for pair in pairs if pair[0]]


def _lines(
    results: Iterable[TrialResult], method: str, along: Callable[[Trial], int]
) -> dict[int, dict[int, tuple[float, ...]]]:
    """Return {k: {position: means of all measures}}."""
    found: dict[int, dict[int, list[TrialMeasures]]] = defaultdict(lambda: defaultdict(list))
    for trial, outcome in results:
        if trial.method == method:
            found[trial.k][along(trial)].append(outcome)
    return {
        k: {at: tuple(_mean(outcomes, name) for name in MEASURES) for at, outcomes in line.items()}
        for k, line in found.items()
    }


def _mean(outcomes: Sequence[TrialMeasures], measure: str) -> float:
    return float(np.mean([getattr(one, measure) for one in outcomes]))


def _recalls(pairs: Sequence[Pair]) -> str:
    mine, theirs = (np.mean([_mean(pair[side], "recall") for pair in pairs]) for side in (0, 1))
    return f"recall {mine:.2%} against {theirs:.2%} on average"


def _span(values: Sequence[float], style: str) -> str:
    low, high = f"{min(values):{style}}", f"{max(values):{style}}"
    return low if low == high else f"{low} to {high}"


def _rows(table: ExhibitTable) -> list[dict[str, Any]]:
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]
