import numpy as np
import pytest
from hypothesis import assume, given

from fairsync.data.requests import Requests
from fairsync.data.splits import split_by_time, split_by_users
from fairsync.errors import InvalidInputError
from fairsync.ragged import PADDING
from sequences import Visits, drawn_visits, make_dataset, real_dataset


def plain(requests: Requests) -> list[tuple[int, int, list[int], list[int]]]:
    """Return (time, user, history, targets) of each request."""
    histories = [[item for item in one if item != PADDING] for one in requests.histories.tolist()]
    targets = [one.tolist() for one in requests.targets]
    return list(zip(requests.times.tolist(), requests.users.tolist(), histories, targets, strict=True))


@given(visits=drawn_visits(least_users=10, most_users=25))
def test_users_are_dealt_and_their_sequences_cut_at_four_fifths(visits: Visits) -> None:
    split = split_by_users(make_dataset(visits), seed=3)
    validation, test = plain(split.validation), plain(split.test)
    for time, user, history, targets in validation + test:
        items = [item for _, item in visits[user]]
        cut = max(1, int(len(items) * 0.8))
        assert history == items[:cut][-4:]
        assert targets == items[cut:]
        assert time == visits[user][cut][0]
    asking = [user for _, user, _, _ in validation + test]
    assert len(set(asking)) == len(asking)
    left = [[item for _, item in one] for user, one in enumerate(visits) if user not in asking]
    trained = [one.tolist() for one in split.train]
    for sequence in trained:
        left.remove(sequence)  # each comes from a user of its own, who asks nothing
    assert len(trained) <= len(visits) * 8 // 10
    assert [] not in trained


def test_a_fifth_of_the_users_ask_in_random_order() -> None:
    dataset = make_dataset([[(0, 1), (1, user % 7)] for user in range(1000)])
    split = split_by_users(dataset)
    assert (len(split.train), len(split.validation), len(split.test)) == (800, 100, 100)
    assert split.test.users.tolist() != sorted(split.test.users.tolist())
    assert plain(split_by_users(dataset).test) == plain(split.test)
    assert plain(split_by_users(dataset, seed=1).test) != plain(split.test)


@given(visits=drawn_visits(latest=100))
def test_time_is_cut_where_a_plain_loop_cuts_it(visits: Visits) -> None:
    times = sorted(time for one in visits for time, _ in one)
    assume(times)
    first, second = times[len(times) * 8 // 10], times[len(times) * 9 // 10]
    assume(times[0] < first < second)
    split = split_by_time(make_dataset(visits))
    sequences = [[item for time, item in one if time < first] for one in visits]
    assert [one.tolist() for one in split.train] == [one for one in sequences if one]
    for requests, start, stop in ((split.validation, first, second), (split.test, second, times[-1] + 1)):
        wanted = []
        for user, one in enumerate(visits):
            before = [item for time, item in one if time < start]
            inside = [(time, item) for time, item in one if start <= time < stop]
            if before and inside:
                wanted.append((inside[0][0], user, before[-4:], [item for _, item in inside]))
        assert plain(requests) == sorted(wanted, key=lambda request: request[:2])


def test_what_happens_at_the_same_moment_stays_together() -> None:
    # Eight tenths of the interactions end amid the three of moment 7: all three belong to what comes after.
    visits = [[(time, time) for time in range(6)], [(6, 6), (7, 7), (7, 8), (7, 9)], [(1, 0), (9, 1), (9, 2)]]
    split = split_by_time(make_dataset(visits))
    assert [one.tolist() for one in split.train] == [[0, 1, 2, 3, 4, 5], [6], [0]]
    assert plain(split.validation) == [(7, 1, [6], [7, 8, 9])]
    assert plain(split.test) == [(9, 2, [0], [1, 2])]


def test_history_length_is_the_data_sets_or_the_callers() -> None:
    dataset = make_dataset([[(time, time) for time in range(10)] for _ in range(10)], history=3)
    assert split_by_users(dataset).test.histories.tolist() == [[5, 6, 7]]
    assert split_by_users(dataset, history=9).test.histories.tolist() == [[*range(8), PADDING]]
    assert split_by_time(dataset, history=2).test.histories.tolist() == [[7, 8]] * 10


def test_what_cannot_be_split_is_refused() -> None:
    few = make_dataset([[(0, 1), (1, 2)]] * 9)
    with pytest.raises(InvalidInputError, match="10 or more"):
        split_by_users(few)
    with pytest.raises(InvalidInputError, match="history must be"):
        split_by_users(make_dataset([[(0, 1), (1, 2)]] * 10), history=0)
    with pytest.raises(InvalidInputError, match="use split_by_users"):
        split_by_time(few)
    with pytest.raises(InvalidInputError, match="no interactions"):
        split_by_time(make_dataset([[]]))
    with pytest.raises(InvalidInputError, match="has no clock"):
        split_by_time(make_dataset([[(time, 1) for time in range(10)]], has_clock=False))


def test_beauty_has_as_many_test_requests_as_the_notes_say() -> None:
    dataset = real_dataset("amazon-beauty", has_clock=False)
    split = split_by_users(dataset)
    assert len(split.test) == 2_237
    assert len(split.train) + len(split.validation) + len(split.test) == 22_363
    asked = np.concatenate([split.validation.users, split.test.users])
    kept = dataset.sequences.lengths.sum() - dataset.sequences.lengths[asked].sum()
    assert len(split.train.items) == kept


def test_tafeng_is_cut_between_days() -> None:
    dataset = real_dataset("tafeng", has_clock=True)
    split = split_by_time(dataset)
    first = int(split.validation.times.min())
    assert len(split.train.items) == int((dataset.times < first).sum())
    assert 0.78 < len(split.train.items) / len(dataset.times) <= 0.8
    assert (np.diff(split.test.times) >= 0).all()
    assert split.test.times.min() > split.validation.times.max()
