import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairsync.data.replay import Replay, replay
from fairsync.errors import InvalidInputError
from fairsync.ragged import PADDING
from sequences import Visits, drawn_visits, make_dataset, real_dataset


def plain_replay(
    visits: Visits, start: int, stop: int | None, gap: int, length: int
) -> tuple[list[tuple[int, int, list[int], list[int]]], int]:
    """Walk through each user's interactions; return (time, user, history, targets) in order, and newcomers."""
    requests, newcomers = [], 0
    for user, one in enumerate(visits):
        place = 0
        while place < len(one):
            end = place + 1
            while end < len(one) and one[end][0] - one[end - 1][0] <= gap:
                end += 1
            time = one[place][0]
            if time >= start and (stop is None or time < stop):
                if place == 0:
                    newcomers += 1
                else:
                    history = [item for _, item in one[:place]][-length:]
                    requests.append((time, user, history, list(dict.fromkeys(item for _, item in one[place:end]))))
            place = end
    return sorted(requests, key=lambda request: request[:2]), newcomers


def plain(visits: Replay) -> list[tuple[int, int, list[int], list[int]]]:
    histories = [[item for item in one if item != PADDING] for one in visits.histories.tolist()]
    targets = [one.tolist() for one in visits.targets]
    return list(zip(visits.times.tolist(), visits.users.tolist(), histories, targets, strict=True))


@given(
    visits=drawn_visits(),
    start=st.integers(-1, 31),
    lasts=st.none() | st.integers(1, 20),
    gap=st.integers(0, 8),
    length=st.integers(1, 5),
)
def test_every_visit_of_the_period_is_a_request(
    visits: Visits, start: int, lasts: int | None, gap: int, length: int
) -> None:
    stop = None if lasts is None else start + lasts
    got = replay(make_dataset(visits), start, stop, gap, history=length)
    assert (plain(got), got.newcomers) == plain_replay(visits, start, stop, gap, length)


def test_by_default_the_last_tenth_is_replayed() -> None:
    dataset = make_dataset([[(10 * time, time) for time in range(100)]], history=2)
    visits = replay(dataset)
    assert visits.times.tolist() == list(range(900, 1000, 10))
    assert visits.histories[0].tolist() == [88, 89]


def test_what_cannot_be_replayed_is_refused() -> None:
    dataset = make_dataset([[(0, 1), (5, 2)]])
    with pytest.raises(InvalidInputError, match="choose a later stop"):
        replay(dataset, start=5, stop=5)
    with pytest.raises(InvalidInputError, match="session_gap must be"):
        replay(dataset, session_gap=-1)
    with pytest.raises(InvalidInputError, match="history must be"):
        replay(dataset, history=0)
    with pytest.raises(InvalidInputError, match="no interactions"):
        replay(make_dataset([[], []]))
    with pytest.raises(InvalidInputError, match="has no clock"):
        replay(make_dataset([[(0, 1), (5, 2)]], has_clock=False), start=0)


def test_tafeng_has_a_request_for_every_user_and_day_but_the_first() -> None:
    dataset = real_dataset("tafeng", has_clock=True)
    visits = replay(dataset, start=0)
    users = np.repeat(np.arange(len(dataset.user_ids)), dataset.sequences.lengths)
    days = set(zip(users.tolist(), dataset.times.tolist(), strict=True))
    assert visits.newcomers == len(dataset.user_ids)
    assert len(visits) == len(days) - visits.newcomers
    assert (visits.histories[:, 0] != PADDING).all()
