"""Evaluate several policies and list lengths on the same requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.cold_start.cold_start import MEAN, is_cold
from fairsync.errors import InvalidInputError
from fairsync.evaluation.list_metrics import ListMetrics, measure_lists
from fairsync.evaluation.promise_results import PromiseResult, measure_promises
from fairsync.evaluation.rows import target_rows
from fairsync.inputs import check_users
from fairsync.policies import NoPolicy, make_policy
from fairsync.promises.floors import resolve_floors
from fairsync.retriever import FairRetriever
from fairsync.search import make_index
from fairsync.text import count, plain_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import ArrayLike, NDArray
    from rich.console import Console, ConsoleOptions, RenderableType

    from fairsync.catalog import Catalog, Where
    from fairsync.catalog.groups import Label
    from fairsync.cold_start.cold_start import Cold
    from fairsync.eligibility.rules import Exclude
    from fairsync.policies import Policy
    from fairsync.promises import Promise
    from fairsync.promises.floors import Floors
    from fairsync.ragged import Ragged
    from fairsync.search import Index

_PLAIN = NoPolicy.name
_CALL = 1024  # requests between two calls of `watch`; it does not change the candidates


@dataclass(frozen=True)
class PolicyResult:
    """The result of one policy at one k.

    Attributes
    ----------
    policy : str
        Name of the policy.
    k : int
        Candidates per request.
    metrics : ListMetrics
        Metrics of the candidate lists.
    relevance : float
        Sum of the candidates' relevance.
    relevance_kept : float or None
        The relevance as a fraction of that of the policy ``none``. None if that policy was not evaluated.
    exposures : dict
        {label: exposures}.
    promises : tuple of PromiseResult
        What each promise got; empty if there are only floors of groups.
    """

    policy: str
    k: int
    metrics: ListMetrics
    relevance: float
    relevance_kept: float | None
    exposures: dict[Label, int]
    promises: tuple[PromiseResult, ...] = ()


@dataclass(frozen=True, repr=False)
class Evaluation:
    """The results of all policies at all k.

    Attributes
    ----------
    requests : int
        Number of requests, which is the horizon of the floors.
    batch_size : int
        Requests between two price changes.
    floors : dict
        {label: floor}; 0 for groups without a floor.
    unknown_targets : int
        Targets that are not in the catalog. They count as not found.
    results : tuple of PolicyResult
        The results, sorted by k and then in the given order of policies.
    cold_requests : int
        Requests about whose user nothing was known, answered by the fallback.
    """

    requests: int
    batch_size: int
    floors: dict[Label, int]
    unknown_targets: int
    results: tuple[PolicyResult, ...]
    cold_requests: int = 0

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        from fairsync.evaluation.table import render, render_promises  # here, because rich takes long to import

        yield render(self, options.max_width)
        yield from render_promises(self)

    def __str__(self) -> str:
        return plain_text(self)

    def __repr__(self) -> str:
        policies = ", ".join(dict.fromkeys(one.policy for one in self.results))
        ks = ", ".join(map(str, dict.fromkeys(one.k for one in self.results)))
        return f"Evaluation({policies}, k = {ks}, {count(self.requests, 'request')})"

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serialisable dictionary. Groups are rows, so that labels keep their type."""
        return {
            "requests": self.requests,
            "batch_size": self.batch_size,
            "unknown_targets": self.unknown_targets,
            "cold_requests": self.cold_requests,
            "results": [
                {
                    "policy": one.policy,
                    "k": one.k,
                    **asdict(one.metrics),
                    "relevance": one.relevance,
                    "relevance_kept": one.relevance_kept,
                    "groups": [
                        {"group": label, "floor": self.floors[label], "exposures": exposures}
                        for label, exposures in one.exposures.items()
                    ],
                    **({"promises": [asdict(promise) for promise in one.promises]} if one.promises else {}),
                }
                for one in self.results
            ],
        }


def evaluate(
    catalog: Catalog,
    users: ArrayLike,
    targets: Ragged | Sequence[Iterable[Any]] | None = None,
    *,
    ks: Sequence[int] = (20, 50),
    floors: Floors = 0,
    promises: Sequence[Promise] | None = None,
    policies: Sequence[str | Policy] = ("none",),
    batch_size: int = 16,
    index: str | Index | Callable[[Catalog], Index] = "exact",
    watch: Callable[[str, int, int], object] | None = None,
    exclude: Exclude | None = None,
    where: Where | Sequence[Where | None] | None = None,
    cold: Cold = MEAN,
    if_infeasible: str = "refuse",
    budget: float | None = None,
) -> Evaluation:
    """Answer requests under each policy at each k, and measure the candidate lists.

    The index is built once. Without floors a shorter list is a prefix of a longer one, so the policy ``none`` retrieves
    once for all k. Under any other policy, prices depend on k.

    Parameters
    ----------
    catalog
        The items.
    users
        (n, d) or (n, interests, d) User vectors in order of arrival.
    targets
        Relevant items of each request: lists of item ids, or a :class:`~fairsync.ragged.Ragged` of catalog rows. If
        None, only exposure is measured.
    ks
        Numbers of candidates per request.
    floors
        Floors over all n requests: one number for all groups, or {label: number}.
    promises
        In place of floors: promises that may overlap, for the policies ``guaranteed`` and ``none``. ESP is then the
        fraction of them that are kept.
    policies
        Names or objects of policies. All but ``none`` need floors or promises.
    batch_size
        Requests between two price changes.
    index
        Name of an index, a function of the catalog that builds one, or, without promises, an index.
    watch
        A callback that regularly gets the policy, k and the number of requests answered.
    exclude, where
        The ids that each request must not get, such as those of its history, and conditions on attributes; see
        :meth:`fairsync.FairRetriever.retrieve`. Targets are as they are given, also those that cannot be found.
    cold
        The fallback for requests whose vectors are zero; see :class:`fairsync.FairRetriever`.
    if_infeasible, budget
        Whether promises that cannot all hold are refused or give way, and what all of them may cost; see
        :class:`fairsync.FairRetriever`.

    Examples
    --------
    >>> from fairsync.catalog import Catalog
    >>> from fairsync.promises import Promise
    >>> rng = np.random.default_rng(0)
    >>> items = rng.normal(size=(60, 8)) + np.repeat([[1.0], [0.0]], 30, axis=0)
    >>> catalog = Catalog(items, ["red"] * 30 + ["blue"] * 30)
    >>> found = evaluate(catalog, rng.normal(size=(50, 8)) + 1, ks=[4], floors=40, policies=["none", "guaranteed"])
    >>> [(one.policy, one.exposures["blue"] >= 40, one.metrics.esp) for one in found.results]
    [('none', False, 0.5), ('guaranteed', True, 1.0)]
    >>> promise = Promise({"group": "red"}, at_most=0.6)
    >>> found = evaluate(catalog, rng.normal(size=(50, 8)) + 1, ks=[4], promises=[promise], policies=["guaranteed"])
    >>> [(one.name, one.at_most, one.kept) for one in found.results[0].promises]
    [('group=red', 120, True)]
    """
    vectors = check_users(users, catalog)
    if len(vectors) == 0:
        raise InvalidInputError("there are no requests: give at least one user.")
    wanted, unknown = (None, 0) if targets is None else target_rows(catalog, targets, len(vectors))
    exclude = _check_rules(exclude, where, len(vectors))
    promised = resolve_floors(floors, catalog)
    for name, given in (("ks", ks), ("policies", policies)):
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise InvalidInputError(f"{name} must be a list, got {given!r:.80}: write {name}=[{given!r:.80}].")
    chosen, lengths = [make_policy(policy) for policy in policies], sorted(ks)
    _check([policy.name for policy in chosen], lengths, bool(promised.any()) or promises is not None)
    by_label = dict(zip(catalog.labels, promised.tolist(), strict=True))
    terms: dict[str, Any] = {"floors": floors, "promises": promises, "index": _shared(index), "budget": budget}
    terms["if_infeasible"] = if_infeasible
    if promises is None:
        terms |= {"floors": by_label, "index": make_index(index, catalog)}
    retrievers = [  # all of them before the first request is answered, so that infeasible promises are refused at once
        FairRetriever(catalog, k=k, horizon=len(vectors), policy=policy, batch_size=batch_size, cold=cold, **terms)
        for policy in sorted(chosen, key=lambda policy: policy.name != _PLAIN)  # the others are compared with it
        for k in (lengths[-1:] if policy.name == _PLAIN else lengths)
    ]
    results: dict[tuple[str, int], PolicyResult] = {}
    for one in retrievers:
        name = one.policy.name
        rows, relevance = _retrieve_all(one, vectors, exclude, where, watch)
        for k in lengths if name == _PLAIN else [one.terms.k]:
            metrics, exposures = measure_lists(catalog, rows[:, :k], wanted, by_label)
            gave_way = None if name == _PLAIN else one.report().gave_way
            kept = measure_promises(catalog, one.promises or (), rows[:, :k], gave_way)
            if kept:
                metrics = replace(metrics, esp=sum(promise.kept for promise in kept) / len(kept))
            total = float(relevance[:, :k].sum(where=rows[:, :k] >= 0))
            plain = total if name == _PLAIN else results[_PLAIN, k].relevance if (_PLAIN, k) in results else 0.0
            share = total / plain if plain > 0 else None
            results[name, k] = PolicyResult(name, k, metrics, total, share, exposures, kept)
    in_order = tuple(results[policy.name, k] for k in lengths for policy in chosen)
    n_cold = int(is_cold(vectors).sum())
    return Evaluation(len(vectors), retrievers[0].terms.batch_size, by_label, unknown, in_order, n_cold)


def _shared(index: str | Index | Callable[[Catalog], Index]) -> Callable[[Catalog], Index]:
    """Return a function that builds an index once: the same promises divide a catalog into the same atoms."""
    built: list[Index] = []

    def build(searched: Catalog) -> Index:
        if not built:
            built.append(make_index(index, searched))
        return built[0]

    return build


def _check(policies: Sequence[str], ks: Sequence[int], has_promises: bool) -> None:
    """Refuse an evaluation that would measure nothing, or the same thing twice."""
    for what, given in (("policy", policies), ("k", ks)):
        if not given:
            raise InvalidInputError(f"give at least one {what}.")
        twice = [one for place, one in enumerate(given) if one in given[:place]]
        if twice:
            raise InvalidInputError(f"the {what} {twice[0]} was given twice: leave one out.")
    idle = [name for name in policies if name != _PLAIN]
    if idle and not has_promises:
        raise InvalidInputError(
            f"The policy {idle[0]!r} has nothing to keep without floors: give floors above 0 (--floor or --floors), or"
            " promises (--promise, --each or --promises)."
        )


def _check_rules(exclude: Exclude | None, where: Where | Sequence[Where | None] | None, n: int) -> Exclude | None:
    """Refuse rules of another number of requests; return ``exclude`` in a form that can be sliced."""
    rows: Any = exclude if exclude is None or not hasattr(exclude, "tocsr") else exclude.tocsr()
    lengths = {
        "exclude": n if rows is None else rows.shape[0] if hasattr(rows, "tocsr") else len(rows),
        "where": n if where is None or isinstance(where, Mapping) else len(where),
    }
    for what, length in lengths.items():
        if length != n:
            raise InvalidInputError(f"there are {n} requests, and {what} has {length}: give one for each.")
    return rows


def _retrieve_all(
    retriever: FairRetriever,
    users: NDArray[np.floating[Any]],
    exclude: Exclude | None,
    where: Where | Sequence[Where | None] | None,
    watch: Callable[[str, int, int], object] | None,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the candidates of all requests as catalog rows, and their relevance."""
    name, k = retriever.policy.name, retriever.terms.k
    rows, relevance = np.empty((len(users), k), dtype=np.int64), np.empty((len(users), k))
    for start in range(0, len(users), _CALL):
        here = slice(start, start + _CALL)
        condition = where if where is None or isinstance(where, Mapping) else where[here]
        found = retriever.retrieve(users[here], None if exclude is None else exclude[here], condition)
        rows[here], relevance[here] = found.rows, found.relevance
        if watch:
            watch(name, k, min(start + _CALL, len(users)))
    return rows, relevance
