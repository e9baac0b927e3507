"""A/B arms: who is in which arm, whose promise is what, and what may be concluded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairsync as fs
from fairsync.errors import InvalidInputError
from fairsync.service.arms.assignment import Assignment
from fairsync.service.arms.comparison import ArmSums, compare
from fairsync.service.arms.pro_rata import split_promise, split_whole
from fairsync.service.schema import PromiseRecord, WindowRecord
from fairsync.service.settings import parse_settings

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


def finds_difference(sums: list[ArmSums]) -> bool:
    gap = compare({"a": 0.5, "b": 0.5}, sums)[1].relevance_difference
    assert gap is not None
    assert gap.low is not None
    assert gap.high is not None
    return not gap.low <= 0 <= gap.high


def test_an_a_a_test_over_a_replay_keeps_the_totals_and_finds_nothing_in_about_95_of_100_splits() -> None:
    """Of 25 splits, 1.25 are expected to differ; 6 or more would have a chance of 1 in 500 if intervals are right."""
    rng = np.random.default_rng(5)
    catalog = fs.Catalog(rng.normal(size=(120, 8)), np.repeat(["x", "y", "z"], [80, 30, 10]))
    tastes = rng.normal(size=(300, 8))
    of = rng.permutation(np.repeat(np.arange(300), rng.geometric(0.3, size=300)))  # some users come often
    vectors, floor = tastes[of] + 0.3 * rng.normal(size=(len(of), 8)), len(of) // 2
    found = 0
    for split in range(25):
        arms = Assignment(f"split {split}", ["a", "b"], [0.5, 0.5])
        places = np.array([arms.place_of(str(user)) for user in of.tolist()])
        exposures, sums = 0, []
        for arm, part in enumerate(split_whole(floor, arms.shares)):
            mine = places[:, 0] == arm
            retriever = fs.FairRetriever(catalog, k=5, floors={"z": part}, horizon=int(mine.sum()), batch_size=64)
            answers = retriever.retrieve(vectors[mine])
            sums.append(ArmSums.zero(arms.buckets))
            for bucket, relevance in zip(places[mine, 1].tolist(), answers.relevance.sum(axis=1).tolist(), strict=True):
                sums[-1].add(bucket, 1, relevance, 0.0)
            exposures += int(np.count_nonzero(answers.groups == "z"))
        assert exposures >= floor, "the totals hold"
        found += finds_difference(sums)
    assert found <= 5


def test_intervals_that_ignore_users_would_be_too_narrow() -> None:
    """Requests as units of their own: users who come often are counted as many."""
    rng = np.random.default_rng(1)
    clustered, naive, n = 0, 0, 120
    for split in range(n):
        of, taste = np.repeat(np.arange(200), rng.geometric(0.2, size=200)), rng.normal(size=200)
        arms, sums = Assignment(f"s{split}", ["a", "b"], [0.5, 0.5]), [ArmSums.zero(200) for _ in "ab"]
        values = 10 + taste[of] + 0.3 * rng.normal(size=len(of))
        groups: list[list[float]] = [[], []]
        for user, value in zip(of.tolist(), values.tolist(), strict=True):
            arm, bucket = arms.place_of(str(user))
            sums[arm].add(bucket, 1, value, 0.0)
            groups[arm].append(value)
        clustered += finds_difference(sums)
        spread = sum(float(np.var(one)) / len(one) for one in groups)
        naive += abs(float(np.mean(groups[0]) - np.mean(groups[1]))) > 1.96 * spread**0.5
    assert clustered / n < 0.12
    assert naive / n > 0.2


def test_a_real_difference_is_found_and_is_the_cost() -> None:
    rng = np.random.default_rng(2)
    sums = [ArmSums.zero(200), ArmSums.zero(200)]
    for user in range(4000):
        sums[user % 2].add(int(rng.integers(200)), 1, 10.0 - (user % 2) + rng.normal(), 3.0)
    first, second = compare({"a": 0.5, "b": 0.5}, sums)
    assert first.cost is None
    assert second.cost is not None
    assert second.cost.low is not None
    assert second.cost.high is not None
    assert 0.08 < second.cost.low < 0.1 < second.cost.high < 0.12
    assert ArmSums.load(sums[0].dump()).sums.tolist() == sums[0].sums.tolist()
    none = compare({"a": 0.5, "b": 0.5}, [ArmSums.zero(200), ArmSums.zero(200)])[1]
    assert none.relevance.value is None
