"""Evaluation against the plainest way to do it: every policy and k on its own, metrics one by one."""

from typing import Any

import numpy as np
import pytest

from fairsync import Catalog, FairRetriever, InfeasibleFloorsError, InvalidInputError, Promise
from fairsync.data import Ragged
from fairsync.evaluation import evaluate
from fairsync.evaluation.plot import plot_exposures
from fairsync.evaluation.rows import target_rows
from fairsync.metrics import category_diversity, gini, hit_rate, ndcg, ndcg_of_hits, recall
from fairsync.text import plain_text

RNG = np.random.default_rng(5)
ITEMS, USERS = RNG.normal(size=(90, 6)) + np.repeat([[0.6], [0.0], [-0.3]], 30, axis=0), RNG.normal(0.4, 1, (70, 6))
GROUPS = np.repeat(["large", "middle", "small"], 30)
IDS = RNG.permutation([f"item {number}" for number in range(90)])
CATALOG = Catalog(ITEMS, GROUPS, IDS)
TARGETS = [RNG.choice(IDS, size=size, replace=False).tolist() for size in RNG.integers(0, 5, size=70)]


def alone(policy: str, k: int, floors: int) -> tuple[Any, Any]:
    retriever = FairRetriever(CATALOG, k=k, floors=floors, horizon=len(USERS), policy=policy, batch_size=8)
    return retriever.retrieve(USERS), retriever.report()


def test_every_figure_is_that_of_a_run_of_its_own() -> None:
    found = evaluate(
        CATALOG, USERS, TARGETS, ks=[8, 3], floors=40, policies=["guaranteed", "none", "fairsync"], batch_size=8
    )
    assert [(one.k, one.policy) for one in found.results] == [
        (k, policy) for k in (3, 8) for policy in ("guaranteed", "none", "fairsync")
    ]
    group_of = dict(zip(IDS.tolist(), GROUPS.tolist(), strict=True))
    for one in found.results:
        lists, report = alone(one.policy, one.k, 40)
        plain, _ = alone("none", one.k, 0)
        figures = one.metrics
        assert one.exposures == report.exposures
        assert one.relevance == pytest.approx(report.relevance)
        assert one.relevance_kept == pytest.approx(report.relevance / plain.relevance.sum())
        assert figures.esp == report.esp
        assert figures.recall == pytest.approx(recall(lists.ids, TARGETS))
        assert figures.ndcg == pytest.approx(ndcg(lists.ids, TARGETS))
        assert figures.ndcg_of_hits == pytest.approx(ndcg_of_hits(lists.ids, TARGETS))
        assert figures.hit_rate == pytest.approx(hit_rate(lists.ids, TARGETS))
        assert figures.gini == pytest.approx(gini(report.exposures))
        assert figures.least_exposures == min(report.exposures.values())
        assert figures.group_coverage == np.mean([count > 0 for count in report.exposures.values()])
        assert figures.item_coverage == len(set(lists.ids.ravel().tolist())) / 90
        assert figures.category_diversity == pytest.approx(category_diversity(lists.ids, group_of))


def test_without_targets_and_floors_only_exposure_is_measured() -> None:
    [one] = evaluate(CATALOG, USERS, ks=[1]).results
    figures = one.metrics
    assert (figures.recall, figures.ndcg, figures.hit_rate, figures.esp, figures.category_diversity) == (None,) * 5
    assert one.relevance_kept == 1
    assert sum(one.exposures.values()) == 70
    [alone] = evaluate(CATALOG, USERS, ks=[2], floors={"small": 9}, policies=["guaranteed"]).results
    assert alone.relevance_kept is None


def test_several_interests() -> None:
    many = RNG.normal(size=(20, 3, 6))
    [one] = evaluate(CATALOG, many, ks=[4]).results
    best = np.sort((many @ ITEMS.T).max(axis=1), axis=1)[:, -4:]
    assert one.relevance == pytest.approx(best.sum())


def test_targets_by_row_and_by_id_are_the_same() -> None:
    row_of = {name: row for row, name in enumerate(IDS.tolist())}
    rows = Ragged(
        np.array([row_of[name] for one in TARGETS for name in one], dtype=np.int32),
        np.concatenate([[0], np.cumsum([len(one) for one in TARGETS])]),
    )
    by_row, by_id = (evaluate(CATALOG, USERS, targets, ks=[10]).results for targets in (rows, TARGETS))
    assert by_row == by_id


def test_targets_that_are_no_items_count_as_missed() -> None:
    rows, unknown = target_rows(CATALOG, [["gone", "lost", "gone"], [IDS[4]]], 2)
    assert unknown == 3
    assert rows[1].tolist() == [4]
    assert len(set(rows[0].tolist())) == 2
    assert min(rows[0]) >= 90
    top = FairRetriever(CATALOG, k=1, floors=0, horizon=2, policy="none").retrieve(USERS[:2]).ids
    [one] = evaluate(CATALOG, USERS[:2], [[top[0, 0], "gone"], [top[1, 0]]], ks=[1]).results
    assert one.metrics.recall == 0.75


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"policies": ["guaranteed"]}, r"'guaranteed' has nothing to keep without floors"),
        ({"policies": ["none", "none"]}, "the policy none was given twice"),
        ({"ks": [5, 5]}, "the k 5 was given twice"),
        ({"ks": []}, "at least one k"),
        ({"ks": [91]}, "choose a smaller k"),
        ({"targets": TARGETS[:-1]}, "there are 70 requests and 69 targets"),
        ({"targets": [[7]] * 70}, r"none of the 70 targets is the id of an item, such as 7; ids look like 'item"),
        ({"users": USERS[:, :4]}, "users have 4 dimensions"),
        ({"users": USERS[:0]}, "there are no requests"),
    ],
)
def test_what_cannot_be_evaluated(changes: dict[str, Any], why: str) -> None:
    given: dict[str, Any] = {"catalog": CATALOG, "users": USERS, "ks": [5]}
    with pytest.raises(InvalidInputError, match=why):
        evaluate(**given | changes)


def test_floors_that_cannot_be_met_at_one_k_are_told_before_the_first_request() -> None:
    with pytest.raises(InfeasibleFloorsError):
        evaluate(
            CATALOG,
            USERS,
            ks=[2, 50],
            floors=100,
            policies=["none", "guaranteed"],
            watch=lambda *_: pytest.fail("it began"),
        )


def test_progress_and_picture() -> None:
    seen = []
    found = evaluate(
        CATALOG, USERS, ks=[2, 4], floors=20, policies=["none", "guaranteed"], watch=lambda *now: seen.append(now)
    )
    assert seen == [("none", 4, 70), ("guaranteed", 2, 70), ("guaranteed", 4, 70)]
    figure = plot_exposures(found)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["K = 2", "K = 4"]
    axes = figure.axes[1]
    heights = {str(bars.get_label()): bars.datavalues.tolist() for bars in axes.containers}  # type: ignore[attr-defined]
    assert heights == {one.policy: list(one.exposures.values()) for one in found.results[2:]}
    assert [label.get_text() for label in axes.get_xticklabels()] == CATALOG.labels


def test_a_picture_of_many_groups() -> None:
    catalog = Catalog(ITEMS, np.arange(90) % 30)
    figure = plot_exposures(found := evaluate(catalog, USERS, ks=[4], floors=2, policies=["none", "guaranteed"]))
    lines = {str(line.get_label()): np.asarray(line.get_ydata()).tolist() for line in figure.axes[0].lines}
    assert lines["none"] == sorted(found.results[0].exposures.values())
    assert lines["floor 2"] == [2, 2]
    assert all(tick == int(tick) for tick in figure.axes[0].get_xticks())


def test_a_picture_of_promises() -> None:
    promises = [Promise({"group": "small"}, at_least=0.2), Promise({"group": "large"}, at_most=0.5)]
    figure = plot_exposures(
        found := evaluate(CATALOG, USERS, ks=[4], promises=promises, policies=["none", "guaranteed"])
    )
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["group=small", "group=large"]
    for bars, one in zip(axes.containers, found.results, strict=True):
        assert bars.datavalues.tolist() == [promise.exposures for promise in one.promises]  # type: ignore[attr-defined]
    assert axes.get_legend_handles_labels()[1] == ["floor", "cap", "none", "guaranteed"]


def test_requests_with_rules_are_answered_under_them() -> None:
    """In whatever calls they are made, and with lists that are short."""
    catalog = Catalog(
        CATALOG.embeddings, {"group": CATALOG.labels_of(CATALOG.group_of), "row": np.arange(len(CATALOG)) * 1.0}
    )
    exclude = [[number % len(CATALOG)] for number in range(len(USERS))]
    where = [{"row": {"at_most": 2}} if number % 7 == 0 else None for number in range(len(USERS))]
    found = evaluate(catalog, USERS, ks=[2, 4], exclude=exclude, where=where)
    retriever = FairRetriever(catalog, k=4, horizon=len(USERS), policy="none")
    same = retriever.retrieve(USERS, exclude, where)
    assert same.short.any()
    assert found.results[1].relevance == pytest.approx(same.relevance[same.rows >= 0].sum())
    assert found.results[1].exposures == retriever.report().exposures
    with pytest.raises(InvalidInputError, match="exclude has 1"):
        evaluate(catalog, USERS, ks=[2], exclude=[[1]])
    with pytest.raises(InvalidInputError, match="where has 1"):
        evaluate(catalog, USERS, ks=[2], where=[None])


@pytest.mark.parametrize("cold", ["mean", IDS[:5].tolist()])
def test_requests_without_a_known_history_are_answered_and_counted(cold: Any) -> None:
    users = np.where(RNG.random((70, 1)) < 0.2, 0.0, USERS)
    found = evaluate(CATALOG, users, ks=[3, 8], floors=40, policies=["none", "guaranteed"], batch_size=8, cold=cold)
    assert found.cold_requests == found.to_dict()["cold_requests"] == int((~users.any(axis=1)).sum()) > 0
    for one in found.results:
        terms: dict[str, Any] = {"k": one.k, "floors": 40, "horizon": 70, "batch_size": 8, "policy": one.policy}
        retriever = FairRetriever(CATALOG, cold=cold, **terms)
        retriever.retrieve(users)
        assert one.exposures == retriever.report().exposures
        assert one.relevance == pytest.approx(retriever.report().relevance)


def test_many_policies_are_shown_in_parts_that_fit_a_terminal() -> None:
    rng = np.random.default_rng(0)
    catalog = Catalog(rng.normal(size=(40, 4)), ["a", "b"] * 20)
    policies = ["none", "guaranteed", "fairsync", "ipw", "k-neighbor", "uncalibrated", "regularized-fair"]
    found = evaluate(catalog, rng.normal(size=(20, 4)), ks=[3, 5], floors=9, policies=policies)
    text = plain_text(found, width=80)
    assert all(f" {policy}" in text for policy in policies)
    assert "…" not in text
    assert text.count("exposures of the least shown group") == 3 * 2
    assert max(map(len, text.splitlines())) <= 80
    assert repr(found).endswith("regularized-fair, k = 3, 5, 20 requests)")
    promised = evaluate(catalog, rng.normal(size=(20, 4)), ks=[3], promises=[Promise({"group": "a"}, at_least=9)])
    assert "Promises at K = 3" in str(promised)


@pytest.mark.parametrize("wrong", [{"ks": 3}, {"policies": "none"}])
def test_one_value_in_the_place_of_a_list_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=r"must be a list, .*: write (ks=\[3\]|policies=\['none'\])"):
        evaluate(Catalog(np.eye(4), ["a", "b"] * 2), np.eye(4), **wrong)
