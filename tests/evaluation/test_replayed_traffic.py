"""ReplayedTraffic: what the model may know, what is asked, and how policies are followed."""

import numpy as np
import pytest

from fairsync import Catalog, FairRetriever, InvalidInputError
from fairsync.data import Dataset, Facts
from fairsync.evaluation.exposure_history import record_exposures, typical_floor
from fairsync.evaluation.replayed_traffic import replay_traffic
from fairsync.metrics import recall
from sequences import make_ragged


def shop(n_users: int = 40, visits: int = 12, seed: int = 0) -> Dataset:
    """Return users who come back again and again, three items each time, all at their own hours."""
    rng = np.random.default_rng(seed)
    lists = [(rng.integers(0, 25, size=3 * visits) + 25 * (user % 2)).tolist() for user in range(n_users)]
    times = np.concatenate([np.repeat(np.sort(rng.choice(100_000, visits, replace=False)), 3) for _ in lists])
    facts = Facts("shop", n_users, 50, 5, 3 * visits * n_users, history=6)
    names = np.array([f"{item:02}" for item in range(50)])
    groups = np.array([f"shelf {item % 5}" for item in range(50)])
    return Dataset(facts, np.arange(n_users).astype(str), names, groups, make_ragged(lists), times)


def test_what_comes_after_changes_nothing_that_was_learnt() -> None:
    data = shop()
    traffic = replay_traffic(data, 1000)
    start = traffic.times[0]
    late = data.times >= start
    items = data.sequences.items.copy()
    items[late] = items[late][::-1]  # another future
    other = Dataset(
        data.facts,
        data.user_ids,
        data.item_ids,
        data.item_groups,
        type(data.sequences)(items, data.sequences.offsets),
        data.times,
    )
    changed = replay_traffic(other, 1000)
    np.testing.assert_array_equal(traffic.catalog.embeddings, changed.catalog.embeddings)
    np.testing.assert_array_equal(traffic.past, changed.past)
    assert traffic.targets.items.tolist() != changed.targets.items.tolist()


def test_the_first_visits_of_the_last_fifth_are_asked() -> None:
    data = shop()
    everything, some = replay_traffic(data, 10_000), replay_traffic(data, 7)
    assert len(some.users) == len(some.targets) == 7
    assert some.times.tolist() == everything.times[:7].tolist() == sorted(some.times.tolist())
    assert 0.75 <= (data.times < everything.times[0]).mean() <= 0.82


def test_a_log_without_a_clock_is_refused() -> None:
    data = shop()
    facts = Facts("shop", 40, 50, 5, 1440, has_clock=False)
    with pytest.raises(InvalidInputError, match="no clock"):
        replay_traffic(Dataset(facts, data.user_ids, data.item_ids, data.item_groups, data.sequences, data.times), 5)


@pytest.mark.parametrize("batch_size", [1, 16, 500])
def test_following_changes_no_answer(batch_size: int) -> None:
    traffic = replay_traffic(shop(), 10_000)
    n = len(traffic.users)

    def retriever() -> FairRetriever:
        return FairRetriever(traffic.catalog, 4, 30, n, batch_size=batch_size)

    reports = []
    course = record_exposures(retriever(), traffic, lambda seen, report: reports.append((seen, report.requests)))
    straight = retriever()
    lists = straight.retrieve(traffic.users)
    assert course.exposures[-1].tolist() == list(straight.report().exposures.values())
    assert (course.seen[0], course.seen[-1], course.exposures[0].sum()) == (0, n, 0)
    assert course.exposures.sum(axis=1).tolist() == (4 * course.seen).tolist()
    assert all(seen == requests for seen, requests in reports)
    targets = [traffic.catalog.ids_of(one).tolist() for one in traffic.targets]
    assert course.recall == pytest.approx(recall(lists.ids, targets))


@pytest.mark.parametrize("liked", [0.0, 1.5])
def test_the_usual_floor_is_what_a_group_in_the_middle_gets(liked: float) -> None:
    rng = np.random.default_rng(1)
    bonus = np.repeat([[liked], [0.0]], [30, 60], axis=0)  # three of nine groups are liked more
    catalog = Catalog(rng.normal(size=(90, 4)) + bonus, np.repeat(np.arange(9), 10))
    past = rng.normal(1, 1, size=(200, 4))
    lists = np.argsort(-(past @ catalog.embeddings.T), axis=1)[:, :3]
    middle = np.median(np.bincount(catalog.group_of[lists].ravel(), minlength=9))
    half_of_all = 2000 * 3 // 9 // 2
    assert (10 * middle < half_of_all) == (liked > 0)
    assert typical_floor(catalog, past.astype(np.float32), 3, 2000) == min(float(f"{10 * middle:.1g}"), half_of_all)
