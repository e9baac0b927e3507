"""Explanations say what brute force says: ranks, prices, reasons, displaced items, and why an item is not there."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fairsync.candidates import Candidates
from fairsync.catalog import Catalog
from fairsync.errors import FairSyncError, InvalidInputError
from fairsync.explain import Explanation
from fairsync.explain.explained_batch import PendingExplanation
from fairsync.explain.trace import RequestTrace
from fairsync.inputs import check_users
from fairsync.loop.serving import serve
from fairsync.policies import NoPolicy
from fairsync.retriever import FairRetriever
from fairsync.search import ExactIndex, Hits, Index, IvfIndex, ShardedIndex
from fairsync.search.eligibility import Eligibility
from plain_explanation import PlainExplanation

if TYPE_CHECKING:
    import numpy.typing as npt


class RecordingIndex(ExactIndex):
    """An exact index that records the prices of its searches."""

    prices: npt.NDArray[np.float64] | None = None

    def search(
        self,
        users: npt.NDArray[np.floating],
        prices: npt.NDArray[np.float64] | None,
        k: int,
        eligible: Eligibility | None = None,
    ) -> Hits:
        if self.prices is None:  # the first search of a request; the guard may search again
            self.prices = prices
        return super().search(users, prices, k, eligible)


@dataclass(frozen=True)
class Case:
    """A catalog, requests and rules to be explained."""

    seed: int
    n_items: int = 30
    k: int = 4
    interests: int = 1
    tightness: float = 0.5
    policy: str = "guaranteed"
    with_ties: bool = False
    has_rules: bool = False
    words: bool = False
    batch_size: int = 3


CASES = [
    Case(0),
    Case(1, interests=3),
    Case(2, has_rules=True),
    Case(3, tightness=0.97),
    Case(4, with_ties=True),
    Case(5, with_ties=True, has_rules=True, words=True, tightness=0.8),
    Case(6, n_items=6, k=5, tightness=0.7),
    Case(7, n_items=6, k=5, has_rules=True),
    Case(8, policy="fairsync"),
    Case(9, policy="fairsync", has_rules=True, interests=2),
    Case(10, tightness=0.9, has_rules=True, interests=2, batch_size=1),
    Case(11, policy="none"),
    Case(12, policy="k-neighbor"),
    Case(227120, n_items=12, k=1, interests=2, policy="k-neighbor", words=True, batch_size=8),
    Case(563378, n_items=5, k=2, tightness=0.2, policy="k-neighbor", with_ties=True, has_rules=True),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"seed{case.seed}")
def test_every_statement_is_that_of_brute_force(case: Case) -> None:
    rng, horizon, groups = np.random.default_rng(case.seed), 24, 3
    group_of = np.concatenate([np.arange(groups), rng.integers(groups, size=case.n_items - groups)])
    embeddings = rng.normal(size=(case.n_items, 4)) - group_of[:, None] * 0.4
    users = rng.normal(size=(horizon, case.interests, 4)) + 0.5
    if case.with_ties:
        embeddings, users = np.round(embeddings), np.round(users)
    users[users.any(axis=2).sum(axis=1) == 0] += 1.0
    ids = [f"i{n}" for n in rng.permutation(case.n_items)] if case.words else rng.permutation(case.n_items).tolist()
    labels = [("a", "b", "c")[group] for group in group_of]
    stock = rng.random(case.n_items) < 0.7
    catalog = Catalog(embeddings, {"kind": labels, "stock": stock.tolist()}, ids)
    capacities = np.minimum(np.bincount(group_of), case.k)
    floor = {
        label: int(case.tightness * min(case.k / groups, cap) * horizon)
        for label, cap in zip("abc", capacities, strict=True)
    }
    index = RecordingIndex(catalog)
    retriever = FairRetriever(
        catalog, k=case.k, floors=floor, horizon=horizon, policy=case.policy, batch_size=case.batch_size, index=index
    )
    reasons: set[str] = set()
    absences: set[str] = set()
    forced = 0
    for i in range(horizon):
        excluded = set(rng.choice(ids, size=2, replace=False).tolist()) if case.has_rules else set()
        where = {"stock": True} if case.has_rules and i % 2 else None
        meets = {one for one, there in zip(ids, stock, strict=True) if there or where is None}
        eligible = meets - excluded
        if not eligible:
            continue
        exposures = retriever.report().exposures if i else dict.fromkeys("abc", 0)
        index.prices = None
        found = retriever.retrieve(users[i : i + 1], [list(excluded)], where, explain=True)
        prices = np.zeros(groups) if index.prices is None else index.prices
        chosen = [one for one, score in zip(found.ids[0].tolist(), found.relevance[0], strict=True) if score > -np.inf]
        missing = [max(floor[label] - exposures[label], 0) for label in "abc"]
        keeps = missing if case.policy == "guaranteed" else None
        plain = PlainExplanation.of(catalog, users[i], prices.tolist(), keeps, eligible, chosen, case.k)
        explanation = found.explain(0)
        assert [one.id for one in explanation.candidates] == chosen
        assert explanation.depth is None
        assert explanation.cut == plain.cut
        for one in explanation.candidates:
            promise = f"{one.group} ≥ {floor[str(one.group)]}"
            assert one.relevance == plain.relevance[one.id]
            assert one.price == plain.price[one.id]
            assert set(one.prices) == ({promise} if floor[str(one.group)] else set())
            assert one.plain_rank == plain.ranks[one.id]
            assert one.displaced == plain.displaced.get(one.id)
            if one.reason == "relevance":
                assert one.plain_rank <= case.k
            else:
                assert one.reason in (f"promise: {promise}", f"forced: {promise}")
            if one.reason.startswith("promise"):
                assert one.plain_rank > case.k
        by_score = sorted(eligible, key=lambda one: (plain.price[one] - plain.relevance[one], one))[: case.k]
        now = [one.id for one in explanation.candidates if one.reason.startswith("forced")]
        assert set(now) == set(chosen) - set(by_score), "prices alone would not have shown them"
        forced += len(now)
        reasons |= {one.reason.partition(":")[0] for one in explanation.candidates}
        for item in set(ids) - set(chosen):
            why = explanation.why_not(item)
            expected = (
                "excluded" if item in excluded
                else "condition" if item not in meets
                else "forced" if item in by_score
                else "price" if item in plain.plain or plain.price[item] == np.inf
                else "relevance"
            )  # fmt: skip
            assert (why.id, why.reason) == (item, expected)
            assert (why.relevance, why.price, why.cut) == (plain.relevance[item], plain.price[item], plain.cut)
            if plain.cut is None:
                assert why.below is None
            else:
                assert why.below == plain.cut - (plain.relevance[item] - plain.price[item])
                assert why.below >= 0 or item not in eligible
            absences.add(why.reason)
            assert repr(item) in str(why)
        assert_outlives_its_process(found, catalog, explanation)
        with pytest.raises(InvalidInputError, match="among the candidates"):
            explanation.why_not(chosen[0])
    assert forced == retriever.report().forced
    assert "relevance" in reasons
    if case.tightness > 0.9:
        assert {"forced", "promise"} <= reasons
    if case.has_rules and case.n_items > 20:
        assert {"excluded", "condition", "relevance"} <= absences


def assert_outlives_its_process(found: Candidates, catalog: Catalog, explanation: Explanation) -> None:
    """Saved and loaded, an explanation says the same, and its trace still answers why an item is not there."""
    loaded = Candidates.load(found.dump(0))
    assert loaded.explain(0) == explanation
    assert Explanation.from_dict(json.loads(json.dumps(explanation.to_dict()))) == explanation
    document = json.loads(found.dump(0))[-1]["trace"]
    trace = RequestTrace.from_dict(document, catalog)
    for item in set(catalog.ids.tolist()) - set(found.ids[0].tolist()):
        assert trace.why_not(catalog, item) == explanation.why_not(item)
    with pytest.raises(FairSyncError, match=r"client\.why_not"):
        loaded.explain(0).why_not(catalog.ids.tolist()[0])


def test_a_batch_is_explained_request_by_request() -> None:
    """Floors are met within a batch: the subsidies of its later requests have ended."""
    rng = np.random.default_rng(3)
    catalog = Catalog(rng.normal(size=(40, 4)) - np.repeat([[0.0], [1.0]], 20, axis=0), ["a"] * 20 + ["b"] * 20)
    users, index = rng.normal(size=(30, 4)) + 0.5, RecordingIndex(catalog)
    retriever = FairRetriever(catalog, k=3, floors={"b": 20}, horizon=30, batch_size=10, index=index)
    retriever.calibrate(users)
    start, exposures, ended = 0, 0, 0
    while start < 30:
        index.prices = None
        found = retriever.retrieve(users[start : start + 10], explain=True)
        prices = np.zeros(2) if index.prices is None else index.prices
        for i in range(10):
            chosen = found.ids[i].tolist()
            missing = [0, max(20 - exposures, 0)]
            everything = set(range(40))
            plain = PlainExplanation.of(catalog, users[start + i], prices.tolist(), missing, everything, chosen, 3)
            for one in found.explain(i).candidates:
                assert (one.price, one.plain_rank) == (plain.price[one.id], plain.ranks[one.id])
                assert one.displaced == plain.displaced.get(one.id)
            ended += sum(
                prices[1] < 0 and why.price == 0 for why in map(found.explain(i).why_not, {*range(20, 40)} - {*chosen})
            )
            exposures += sum(item >= 20 for item in chosen)
        start += 10
    assert exposures >= 20
    assert 0 < ended < 17 * 30


def test_explaining_changes_no_answer() -> None:
    rng = np.random.default_rng(5)
    catalog = Catalog(rng.normal(size=(50, 4)), rng.integers(4, size=50))
    users = rng.normal(size=(40, 4))
    made = [FairRetriever(catalog, k=5, floors=30, horizon=40, batch_size=4) for _ in range(2)]
    answers = [one.retrieve(users, explain=explain) for one, explain in zip(made, (False, True), strict=True)]
    assert (answers[0].ids == answers[1].ids).all()
    assert made[0].report() == made[1].report()
    with pytest.raises(FairSyncError, match="explain=True"):
        answers[0].explain(3)


def test_parts_keep_their_explanations() -> None:
    rng = np.random.default_rng(6)
    catalog, users = Catalog(rng.normal(size=(20, 3)), [0, 1] * 10), rng.normal(size=(6, 3))
    retriever = FairRetriever(catalog, k=2)
    found, plain = retriever.retrieve(users, explain=True), retriever.retrieve(users[:2])
    some = Candidates.join([plain, found.take(np.array([4, 1]))])
    assert [one.id for one in some.explain(2).candidates] == found.ids[4].tolist()
    assert [one.id for one in some.explain(3).candidates] == found.ids[1].tolist()
    assert [one.id for one in found.take(slice(2, 4)).explain(1).candidates] == found.ids[3].tolist()
    with pytest.raises(FairSyncError, match="explain=True"):
        some.explain(0)


def make_sharded(catalog: Catalog) -> Index:
    return ShardedIndex(catalog, 3)


@pytest.mark.parametrize("make", [IvfIndex, make_sharded], ids=["ivf", "sharded"])
def test_an_index_that_does_not_count_says_what_it_knows(make: Any) -> None:
    """Ranks beyond the depth of its search are unknown; within it they are those of its own search."""
    rng = np.random.default_rng(7)
    catalog = Catalog(rng.normal(size=(600, 8)) - np.repeat([[0.0], [1.5]], 300, axis=0), ["a"] * 300 + ["b"] * 300)
    index, users = make(catalog), rng.normal(size=(40, 8)) + 0.5
    retriever = FairRetriever(catalog, k=5, floors={"b": 60}, horizon=40, batch_size=4, index=index)
    found = retriever.retrieve(users, explain=True)
    unknown = 0
    for i in range(40):
        explanation = found.explain(i)
        plain = index.search(check_users(users[i : i + 1], catalog), None, explanation.depth or 5).rows[0].tolist()
        for one in explanation.candidates:
            if one.plain_rank is None:
                assert one.id not in plain
                assert f"> {explanation.depth}" in str(explanation)
                unknown += 1
            else:
                assert plain[one.plain_rank - 1] == one.id
        gone = [one for one in plain[:5] if one not in found.ids[i].tolist()]
        assert [one.displaced for one in explanation.candidates if one.displaced is not None] == gone
    assert unknown


def test_an_item_that_the_index_missed_is_called_missed() -> None:
    class Forgetful(ExactIndex):
        """An index that never finds item 0."""

        def search(
            self,
            users: npt.NDArray[np.floating],
            prices: npt.NDArray[np.float64] | None,
            k: int,
            eligible: Eligibility | None = None,
        ) -> Hits:
            rest = Eligibility.of(len(self.catalog), [None] * len(users), [[0]] * len(users))
            return super().search(users, prices, k, rest)

    catalog = Catalog(np.array([[3.0], [2.0], [1.0]]), ["a", "a", "b"])
    retriever = FairRetriever(catalog, k=1, index=Forgetful(catalog))
    why = retriever.retrieve([[1.0]], explain=True).explain().why_not(0)
    assert (why.reason, why.below) == ("missed", -1.0)
    assert str(why) == "0 is not there: the index did not find it; its score 3 is 1 above the cut at 2."


class MaskFirst(NoPolicy):
    """A policy that masks the first group."""

    name = "mask-first"

    def prices(self, state: int) -> npt.NDArray[np.float64]:
        prices = np.zeros(state)
        prices[0] = np.inf
        return prices


def test_masked_groups_and_others_in_their_place() -> None:
    catalog = Catalog(np.array([[3.0], [2.0], [1.0]]), ["a", "b", "b"])
    retriever = FairRetriever(catalog, k=1, policy=MaskFirst())
    found = retriever.retrieve([[1.0]], explain=True)
    candidate = found.explain().candidates[0]
    assert (candidate.id, candidate.reason, candidate.plain_rank, candidate.displaced) == (1, "price", 2, 0)
    why = found.explain().why_not(0)
    assert (why.reason, why.price, why.to_dict()["price"]) == ("price", np.inf, None)
    assert str(why) == "0 is not there: its group is masked, or a limit per list is used up."
    filled = retriever.retrieve([[1.0]], exclude=[[1, 2]], explain=True).explain()
    assert filled.candidates[0].prices == {"a (no promise)": np.inf}
    assert Explanation.from_dict(json.loads(json.dumps(filled.to_dict()))) == filled
    assert "masked" in str(filled)


def test_what_cannot_be_asked() -> None:
    catalog = Catalog(np.eye(3), ["a", "a", "b"], ids=["x", "y", "z"])
    explanation = FairRetriever(catalog, k=1).retrieve(np.eye(3)[:1], explain=True).explain()
    with pytest.raises(InvalidInputError, match="no item 'w'"):
        explanation.why_not("w")
    with pytest.raises(InvalidInputError, match="ids"):
        explanation.why_not(7)


def test_a_trace_is_recorded_only_if_asked_for() -> None:
    catalog = Catalog(np.eye(3), ["a", "a", "b"])
    retriever = FairRetriever(catalog, k=1)
    assert retriever.retrieve(np.eye(3)).explained == ()
    assert serve.__kwdefaults__ == {"explain": False}


@pytest.mark.parametrize("count_cold", [True, False])
@pytest.mark.parametrize("index", ["exact", "ivf"])
@pytest.mark.parametrize("length", [2, 4, 9])
@pytest.mark.parametrize("tightness", [0.0, 0.3, 0.9])
def test_a_fixed_list_is_named_as_the_reason(tightness: float, length: int, index: str, count_cold: bool) -> None:
    """In the order of the answer, without a price; prices explain the other candidates only."""
    rng = np.random.default_rng(length)
    catalog = Catalog(rng.normal(size=(40, 4)) + np.repeat([[0.5], [-0.5]], 20, axis=0), ["a"] * 20 + ["b"] * 20)
    users = np.where(rng.random((40, 1)) < 0.5, 0.0, rng.normal(size=(40, 4)) + 0.5)
    listed = rng.permutation(40)[:length].tolist()
    terms: dict[str, Any] = {"k": 4, "floors": {"b": int(80 * tightness)}, "horizon": 40, "batch_size": 8}
    terms |= {"cold": listed, "count_cold": count_cold, "index": index}
    found = FairRetriever(catalog, **terms).retrieve(users, explain=True)
    assert found.ids.tolist() == FairRetriever(catalog, **terms).retrieve(users).ids.tolist()
    for i in range(40):
        explanation, ids = found.explain(i), found.ids[i].tolist()
        assert [one.id for one in explanation.candidates] == ids
        assert [one.relevance for one in explanation.candidates] == found.relevance[i].tolist()
        named = [one for one in explanation.candidates if one.reason == "fixed list"]
        forced = [one for one in explanation.candidates if one.reason.startswith("forced")]
        assert {one.id for one in named} == (
            set(ids) & set(listed) - {one.id for one in forced} if found.cold[i] else set()
        )
        assert all(not one.prices and one.displaced is None for one in named)
        if not found.cold[i]:
            continue
        assert [one.id for one in named] == [item for item in listed if item in {one.id for one in named}]
        assert "of a fixed list" in str(explanation) or not named
        pending = found.explained[i]
        assert isinstance(pending, PendingExplanation)
        relevance = catalog.embeddings @ pending.batch.trace.users[pending.position, 0]
        if explanation.depth is None:
            ranks = np.argsort(np.argsort(-relevance))[ids] + 1
            assert [one.plain_rank for one in explanation.candidates] == ranks.tolist()
        if not forced:
            assert len(named) == min(length, 4)
            assert (explanation.cut is None) == (len(named) == 4)
        for item in set(range(40)) - set(ids):
            reason = explanation.why_not(item).reason
            assert reason in ("relevance", "price", "forced") or index == "ivf"
            if not forced and len(named) == 4:
                assert reason == "relevance"
    kinds = {one.reason.partition(":")[0] for i in range(40) if found.cold[i] for one in found.explain(i).candidates}
    assert "fixed list" in kinds
    if tightness == 0:
        assert kinds <= {"fixed list", "relevance"}
