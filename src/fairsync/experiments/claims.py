"""Claims of the paper and of this project, each with a verdict from a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairsync.experiments.exhibit import ExhibitTable
from fairsync.experiments.verdicts import (
    TrialResult,
    Verdict,
    above_at_every_floor,
    as_accurate,
    as_fast,
    as_in_the_extreme_case,
    breaks_beyond,
    correlated,
    cost_at_most,
    falls_then_rises,
    floors_cost,
    floors_met,
    floors_missed,
    met_with_more_recall,
    more_accurate,
    towards_the_needy,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from fairsync.experiments.exhibit import Exhibit


@dataclass(frozen=True)
class Evidence:
    """The evidence for a claim.

    Attributes
    ----------
    results : iterable of TrialResult
        Results of its experiment. They can be iterated once.
    table : ExhibitTable
        Table of its experiment.
    """

    results: Iterable[TrialResult]
    table: ExhibitTable


@dataclass(frozen=True)
class Claim:
    """A claim that a run can support or refute.

    Attributes
    ----------
    sentence : str
        The claim in our words.
    experiment : str or None
        Name of the experiment that the claim is about, or None for all.
    judge : callable
        Function from evidence to verdict.
    ours : bool
        Whether the claim is ours and not the paper's.
    """

    sentence: str
    experiment: str | None
    judge: Callable[[Evidence], Verdict]
    ours: bool = False


@dataclass(frozen=True)
class Judged:
    """A claim and its verdict."""

    claim: Claim
    verdict: Verdict

    def to_dict(self) -> dict[str, str | bool | None]:
        """Return a JSON-serialisable dictionary."""
        return {
            "claim": self.claim.sentence,
            "ours": self.claim.ours,
            "experiment": self.claim.experiment,
            "verdict": self.verdict.ruling,
            "figures": self.verdict.figures,
        }


def _of_the_comparison(experiment: str, where: str) -> tuple[Claim, ...]:
    """Return the claims about a table of all methods on all base models."""
    better = "in every cell (recall, NDCG, hit rate; p < 0.05)"
    return (
        Claim(
            f"FairSync gives every group its floor, on every base model and at both lengths of lists{where}.",
            experiment,
            lambda seen: floors_met(seen.results, "fairsync"),
        ),
        Claim(
            f"FairSync is significantly more accurate than Uncalibrated {better}{where}.",
            experiment,
            lambda seen: more_accurate(seen.results, "fairsync", "uncalibrated"),
        ),
        Claim(
            f"FairSync is significantly more accurate than K-neighbor {better}{where}.",
            experiment,
            lambda seen: more_accurate(seen.results, "fairsync", "k-neighbor"),
        ),
        Claim(
            f"FairSync is as accurate as regularized-fair and IPW (within 1 %, or not significantly lower){where}.",
            experiment,
            lambda seen: as_accurate(seen.results, "fairsync", ("regularized-fair", "ipw")),
        ),
        Claim(
            f"Regularized-fair and IPW, however tuned, leave some groups below their floor{where}.",
            experiment,
            lambda seen: floors_missed(seen.results, ("regularized-fair", "ipw")),
        ),
    )


CLAIMS: tuple[Claim, ...] = (
    *_of_the_comparison("table-2", ""),
    *_of_the_comparison("table-2-tense", ", where floors are binding"),
    Claim(
        "What the least exposed group gets in stage 1 and can get in stage 2 go together (correlation 0.7 or more).",
        "figure-1b",
        lambda seen: correlated(seen.table, 0.7),
    ),
    Claim(
        "Higher floors cost accuracy.",
        "accuracy-curve",
        lambda seen: floors_cost(seen.results, "fairsync"),
    ),
    Claim(
        "FairSync is more accurate than Uncalibrated at every floor.",
        "accuracy-curve",
        lambda seen: above_at_every_floor(seen.results, "fairsync", "uncalibrated"),
    ),
    Claim(
        "In the dual space users lie nearer to groups that fall short without floors.",
        "t-sne",
        lambda seen: towards_the_needy(seen.table),
    ),
    Claim(
        "Retrieval takes about as long as without floors for batches of more than 8 requests (1.25 times at most).",
        "inference-time",
        lambda seen: as_fast(seen.table, "fairsync", beyond=8, within=1.25),
    ),
    Claim(
        "Floors are met up to batches of 64 requests and no longer beyond.",
        "batch-size",
        lambda seen: breaks_beyond(_tuned_once(seen.results), "fairsync", 64),
    ),
    Claim(
        "Accuracy falls from batches of 1 to 8 requests, and rises from there to 512.",
        "batch-size",
        lambda seen: falls_then_rises(_tuned_once(seen.results), "fairsync", 8),
    ),
    Claim(
        "A group that nobody likes gets its floor too, at a recall of 96 %.",
        "extreme-case",
        lambda seen: as_in_the_extreme_case(seen.table, "fairsync", 0.96),
    ),
    Claim(
        "Floors that differ from group to group are met too, with more recall than K-neighbor and Uncalibrated.",
        "random-floors",
        lambda seen: met_with_more_recall(seen.results, "fairsync", ("k-neighbor", "uncalibrated")),
    ),
    Claim(
        "The policy 'guaranteed' meets every floor, in every trial of every experiment.",
        None,
        lambda seen: floors_met(seen.results, "guaranteed"),
        ours=True,
    ),
    Claim(
        "The policy 'guaranteed' costs at most twice as much as the best plan in hindsight, where floors are binding.",
        "table-2-tense",
        lambda seen: cost_at_most(seen.results, "guaranteed", 2.0),
        ours=True,
    ),
)


def judge_all(
    exhibits: Mapping[str, Exhibit],
    results: Callable[[str], Iterable[TrialResult]],
    impossible: Mapping[str, str],
) -> list[Judged]:
    """Return the verdict on every claim.

    Parameters
    ----------
    exhibits
        {name of an experiment: its exhibit}.
    results
        Function from the name of an experiment to its results.
    impossible
        {name of an experiment: reason why the data do not allow it}.
    """

    def verdict(claim: Claim) -> Verdict:
        name = claim.experiment
        if name is None:
            return claim.judge(Evidence(_without_repeats(results(one) for one in exhibits), ExhibitTable([], [])))
        if name in impossible:
            return Verdict("not comparable", f"not possible here: {impossible[name]}")
        if name not in exhibits:
            return Verdict("not run", f"fairsync reproduce {name}")
        return claim.judge(Evidence(results(name), exhibits[name].table))

    return [Judged(claim, verdict(claim)) for claim in CLAIMS]


def _tuned_once(results: Iterable[TrialResult]) -> Iterator[TrialResult]:
    """Return the results with a fixed coefficient, without those that were tuned separately."""
    return (result for result in results if result.trial.coefficient is not None)


def _without_repeats(groups: Iterable[Iterable[TrialResult]]) -> Iterator[TrialResult]:
    """Yield the results of several experiments, each trial once."""
    seen = set()
    for results in groups:
        for result in results:
            if result.trial not in seen:
                seen.add(result.trial)
                yield result
