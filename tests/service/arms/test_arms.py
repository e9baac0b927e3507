"""A/B arms: who is in which arm, whose promise is what, and what may be concluded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairsync as fs
from fairsync.errors import InvalidInputError
from fairsync.service.arms.arm_sums import ArmSums
from fairsync.service.arms.assignment import Assignment
from fairsync.service.arms.comparison import compare
from fairsync.service.arms.inference import Cells, adjust_p_values, difference
from fairsync.service.arms.pro_rata import split_promise, split_whole
from fairsync.service.schema import PromiseRecord, WindowRecord
from fairsync.service.settings import parse_settings

if TYPE_CHECKING:
    from fairsync.service.schema.arms import ArmsReport

DAY = WindowRecord(every="day")
SHARES = st.lists(st.floats(0.01, 1.0), min_size=2, max_size=5).map(lambda raw: [one / sum(raw) for one in raw])


@given(st.integers(0, 10**9), SHARES, st.integers(0, 1000))
def test_parts_add_up_and_are_within_one_of_their_share(total: int, shares: list[float], turn: int) -> None:
    parts = split_whole(total, shares, turn)
    assert sum(parts) == total
    assert all(abs(part - total * share / sum(shares)) < 1 + 1e-6 for part, share in zip(parts, shares, strict=True))


@given(st.integers(1, 20), SHARES, st.integers(0, 200), st.integers(1, 200))
def test_no_arm_gets_more_of_many_small_promises(total: int, shares: list[float], first: int, n: int) -> None:
    parts = np.sum([split_whole(total, shares, turn) for turn in range(first, first + n)], axis=0)
    assert parts.sum() == n * total
    assert (np.abs(parts - n * total * np.array(shares)) < 4).all(), "and not n, as if one arm always got the rest"


@given(st.integers(1, 1000), st.integers(0, 1000), SHARES, st.integers(0, 1000))
def test_bounds_of_all_arms_are_the_bounds_of_the_whole(floor: int, more: int, shares: list[float], turn: int) -> None:
    whole = PromiseRecord(where={"a": "x"}, at_least=floor, at_most=floor + more, window=DAY)
    parts = [part for part in split_promise(whole, shares, turn) if part is not None]
    assert all((part.at_least or 0) <= (part.at_most or 0) for part in parts)
    assert sum(part.at_least or 0 for part in parts) == floor
    assert sum(part.at_most or 0 for part in parts) == floor + more
    short = PromiseRecord(group="x", floor=floor, window=DAY)
    assert sum(part.floor or 0 for part in split_promise(short, shares) if part is not None) == floor
    share = PromiseRecord(where={"a": "x"}, at_least=0.05, at_most_per_list=3, window=DAY)
    assert split_promise(share, shares) == [share] * len(shares)


def test_users_keep_their_arm_and_arms_get_their_share() -> None:
    arms, again = (Assignment("november", ["a", "b", "c"], [0.6, 0.3, 0.1]) for _ in range(2))
    users = [f"user {number}" for number in range(20_000)]
    found = [arms.arm_of(user) for user in users]
    assert found == [again.arm_of(user) for user in users]
    for name, share in zip("abc", (0.6, 0.3, 0.1), strict=True):
        assert abs(found.count(name) / 20_000 - share) < 0.02
    other = Assignment("december", ["a", "b", "c"], [0.6, 0.3, 0.1])
    both = sum(one == "a" and other.arm_of(user) == "a" for user, one in zip(users, found, strict=True))
    assert abs(both / 20_000 - 0.36) < 0.02, "another experiment divides users independently"


@pytest.mark.parametrize(
    ("arms", "words"),
    [
        ([{"name": "a", "share": 0.0}, {"name": "b", "share": 1.0}], r"share 0: it must lie between 0 and 1\.$"),
        ([{"name": "a", "share": 0.5}, {"name": "b", "share": 0.4}], "add up to 0.9, not 1"),
        ([{"name": "a", "share": 1.0}], "two arms at least"),
        ([{"name": "a", "share": 0.5}, {"name": "a", "share": 0.5}], "same name"),
        ([{"name": "A b", "share": 0.5}, {"name": "b", "share": 0.5}], "arms"),
    ],
)
def test_arms_that_make_no_sense_are_refused(arms: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        parse_settings({"catalog": {"path": "x"}, "ledger": "memory://", "arms": arms})


def report_of(sums: list[ArmSums]) -> ArmsReport:
    return compare("november", {"a": 0.5, "b": 0.5}, sums)


def replayed(vectors: Any, of: Any, promised: float, split: int, k: int = 5) -> list[ArmSums]:
    """Return what two equal arms give the same users over a week, with half of a promise each."""
    rng = np.random.default_rng(5)
    catalog = fs.Catalog(rng.normal(size=(120, 8)), np.repeat(["x", "y", "z"], [80, 30, 10]))
    arms, floor = Assignment(f"split {split}", ["a", "b"], [0.5, 0.5]), int(promised * k * len(of))
    places = np.array([arms.place_of(str(user)) for user in of.tolist()])
    exposures, sums = 0, []
    for arm, part in enumerate(split_whole(floor, arms.shares)):
        mine, got = np.flatnonzero(places[:, 0] == arm), ArmSums(arms.buckets)
        retriever = fs.FairRetriever(catalog, k=k, floors={"z": part}, horizon=len(mine), batch_size=64)
        for start in range(0, len(mine), 64):
            here, price = mine[start : start + 64], retriever.report().prices["z"]
            answers = retriever.retrieve(vectors[here])
            promised_to = np.count_nonzero(answers.groups == "z", axis=1)
            exposures += int(promised_to.sum())
            for place, request in enumerate(here.tolist()):
                n = int(promised_to[place])
                got.add(
                    7 * request // len(of), int(places[request, 1]), requests=1, exposures=n,
                    relevance=float(answers.relevance[place].sum()), plain=float(answers.plain[place]),
                    prices=n * price, held=n if price else 0,
                )  # fmt: skip
        sums.append(got)
    assert exposures >= floor, "the totals hold"
    return sums


def test_a_a_tests_over_a_replay_keep_the_totals_and_find_nothing_in_95_of_100_splits() -> None:
    """The promise takes a third of all slots, so that an arm with fewer requests pays more for its part in each."""
    rng = np.random.default_rng(5)
    tastes = rng.normal(size=(300, 8))
    of = rng.permutation(np.repeat(np.arange(300), rng.geometric(0.3, size=300)))  # some users come often
    vectors = tastes[of] + 0.3 * rng.normal(size=(len(of), 8))
    found, blind = 0, 0
    for split in range(40):
        sums = replayed(vectors, of, 0.33, split)
        report = report_of(sums)
        assert report.differ is not None
        found += report.differ
        days = list(range(7))
        arms = [
            Cells(one.cells("requests", days), one.cells("relevance", days), one.cells("plain", days)) for one in sums
        ]
        blind += difference(*arms).p_value < 0.05
    assert found <= 2
    assert blind >= 6, "intervals that do not know of prices call it a difference"


def test_intervals_that_ignore_users_would_be_too_narrow() -> None:
    """Requests as units of their own: users who come often are counted as many."""
    rng = np.random.default_rng(1)
    clustered, naive, n = 0, 0, 120
    for split in range(n):
        of, taste = np.repeat(np.arange(200), rng.geometric(0.2, size=200)), rng.normal(size=200)
        arms, sums = Assignment(f"s{split}", ["a", "b"], [0.5, 0.5]), [ArmSums(200) for _ in "ab"]
        values = 10 + taste[of] + 0.3 * rng.normal(size=len(of))
        groups: list[list[float]] = [[], []]
        for user, value in zip(of.tolist(), values.tolist(), strict=True):
            arm, bucket = arms.place_of(str(user))
            sums[arm].add(int(rng.integers(7)), bucket, requests=1, relevance=value)
            groups[arm].append(value)
        clustered += bool(report_of(sums).differ)
        spread = sum(float(np.var(one)) / len(one) for one in groups)
        naive += abs(float(np.mean(groups[0]) - np.mean(groups[1]))) > 1.96 * spread**0.5
    assert clustered / n <= 0.05
    assert naive / n > 0.2


def test_a_real_difference_is_found_and_is_the_cost() -> None:
    rng = np.random.default_rng(2)
    sums = [ArmSums(200), ArmSums(200)]
    for user in range(4000):
        plain = 10.0 + rng.normal()
        relevance = plain * (1 - 0.1 * (user % 2)) + 0.1 * rng.normal()
        sums[user % 2].add(user % 5, int(rng.integers(200)), requests=1, relevance=relevance, plain=plain, exposures=3)
    report = report_of(sums)
    first, second = report.arms
    assert first.cost is None
    assert second.cost is not None
    assert second.cost.low is not None
    assert second.cost.high is not None
    assert 0.098 < second.cost.low < 0.1 < second.cost.high < 0.102, (
        "without the adjustment it would be ten times as wide"
    )
    assert report.differ is True
    assert report.verdict.startswith("The arms differ in relevance (over 5 days")
    assert second.relevance_difference is not None
    assert second.relevance_difference.differs
    assert second.exposures_difference is not None
    assert not second.exposures_difference.differs
    for one in sums:
        one.days[0][2, 7] = np.nan  # of some requests it is not known what they would get without promises
    unadjusted = report_of(sums).arms[1].relevance_difference
    assert unadjusted is not None
    assert unadjusted.low is not None
    assert unadjusted.high is not None
    assert unadjusted.low < -1.0 < unadjusted.high
    assert unadjusted.high - unadjusted.low > 0.1


def test_a_verdict_takes_two_days_and_users_in_both_arms() -> None:
    sums = [ArmSums(200), ArmSums(200)]
    none = report_of(sums)
    assert none.arms[1].relevance.value is None
    assert none.differ is None
    for user in range(40):
        sums[user % 2].add(0, user, requests=1, relevance=1.0 + user / 40, plain=2.0 + user % 3)
    first_day = report_of(sums)
    gap = first_day.arms[1].relevance_difference
    assert gap is not None
    assert gap.value is not None
    assert gap.low is None
    assert first_day.differ is None
    assert "two at least are needed" in first_day.verdict
    for user in range(40):
        sums[user % 2].add(1, user, requests=1, relevance=1.0 + user / 40, plain=2.0 + user % 3)
    assert report_of(sums).differ is False
    assert report_of(sums).days == 2


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_is_the_step_down_procedure(p_values: list[float]) -> None:
    adjusted = adjust_p_values(p_values)
    rejected: set[int] = set()
    for step, place in enumerate(sorted(range(len(p_values)), key=lambda at: p_values[at])):
        if p_values[place] * (len(p_values) - step) >= 0.05:
            break
        rejected.add(place)
    assert {place for place, one in enumerate(adjusted) if one < 0.05} == rejected


def test_the_variance_over_users_is_the_jackknife_of_the_ratio() -> None:
    rng = np.random.default_rng(0)
    requests, values = rng.integers(0, 9, size=(3, 20)).astype(float), rng.normal(size=(3, 20))
    values *= requests > 0
    found, keep = Cells(requests, values).mean(), ~np.eye(20, dtype=bool)
    without = np.array([values[:, one].sum() / requests[:, one].sum() for one in keep])
    assert found.value == pytest.approx(values.sum() / requests.sum())
    spread = (without - found.value) - (without - found.value).mean()
    assert found.variance == pytest.approx(20 / 19 * (spread**2).sum(), rel=0.05)
