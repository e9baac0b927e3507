"""Replayed traffic: the model sees no interaction of the test period."""

import numpy as np
import pytest

from evaluation.visits import shop
from fairsync import InvalidInputError
from fairsync.data import Dataset, Facts
from fairsync.evaluation.replayed_traffic import replay_traffic


def test_later_interactions_do_not_change_the_model() -> None:
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


def test_the_first_visits_of_the_last_fifth_are_replayed() -> None:
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
