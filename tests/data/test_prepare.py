"""The preparation against the plainest way to do each step."""

import itertools
import subprocess
import sys
from collections import Counter

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairsync.data.log import Log, Part
from fairsync.data.prepare import INFREQUENT, keep_frequent, merge_infrequent, prepare
from fairsync.errors import InvalidInputError

Rows = list[tuple[int, int, int]]

N_USERS, N_ITEMS = 6, 8
USER_IDS = [f"u{number}" for number in (3, 10, 2, 0, 30, 1)]
ITEM_IDS = [f"i{number}" for number in (5, 4, 12, 1, 0, 3, 2, 11)]
GROUPS = ["a", "b", "a", "c", "c", "c", "d", "a"]

drawn_rows = st.lists(
    st.tuples(st.integers(0, N_USERS - 1), st.integers(0, N_ITEMS - 1), st.integers(0, 4)), min_size=1, max_size=60
)


def make_log(rows: Rows, pieces: int = 1) -> Log:
    users, items, times = np.array(rows).T
    cuts = np.linspace(0, len(rows), pieces + 1).astype(int)
    parts = [
        Part(users[start:stop].astype(np.int32), items[start:stop].astype(np.int32), times[start:stop])
        for start, stop in itertools.pairwise(cuts)
    ]
    return Log(parts, pl.Series(USER_IDS), pl.Series(ITEM_IDS), pl.Series(GROUPS), raw_rows=len(rows))


def core(rows: Rows, least: int) -> Rows:
    while True:
        users, items = Counter(row[0] for row in rows), Counter(row[1] for row in rows)
        kept = [row for row in rows if users[row[0]] >= least and items[row[1]] >= least]
        if len(kept) == len(rows):
            return rows
        rows = kept


@given(drawn_rows, st.integers(1, 4), st.integers(1, 3), st.integers(1, 4))
def test_against_the_plainest_preparation(rows: Rows, least: int, least_items: int, pieces: int) -> None:
    kept = core(rows, least)
    log = make_log(rows, pieces)
    if not kept:
        with pytest.raises(InvalidInputError, match="Nothing is left"):
            prepare(log, "x", least_interactions=least)
        return
    data = prepare(log, "x", least_interactions=least, least_items=least_items, history=7)
    assert data.user_ids.tolist() == sorted({USER_IDS[user] for user, _, _ in kept})
    assert data.item_ids.tolist() == sorted({ITEM_IDS[item] for _, item, _ in kept})
    for place, user in enumerate(data.user_ids):
        own = sorted((row for row in kept if USER_IDS[row[0]] == user), key=lambda row: row[2])  # sorting is stable
        assert data.item_ids[data.sequences[place]].tolist() == [ITEM_IDS[item] for _, item, _ in own]
        start, stop = data.sequences.offsets[place : place + 2]
        assert data.times[start:stop].tolist() == [time for _, _, time in own]
    group_of = dict(zip(ITEM_IDS, GROUPS, strict=True))
    sizes = Counter(group_of[item] for item in data.item_ids)
    expected = [group_of[item] if sizes[group_of[item]] >= least_items else INFREQUENT for item in data.item_ids]
    assert data.item_groups.tolist() == expected

    facts = data.facts
    assert (facts.users, facts.items) == (len(data.user_ids), len(data.item_ids))
    assert (facts.groups, facts.interactions) == (len(set(expected)), len(kept))
    assert facts.raw_rows == facts.interactions + sum(facts.left_out.values())
    assert (facts.least_interactions, facts.least_items, facts.history) == (least, least_items, 7)
    assert data.sequences.items.dtype == np.int32
    assert data.times.dtype == np.int64


@given(drawn_rows, st.randoms(use_true_random=False))
def test_the_order_of_rows_matters_only_where_times_are_equal(rows: Rows, random: object) -> None:
    rows = [(user, item, place) for place, (user, item, _) in enumerate(rows)]
    mixed = list(rows)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    one, other = (prepare(make_log(some), "x", least_interactions=1, least_items=2) for some in (rows, mixed))
    assert one.facts == other.facts
    assert np.array_equal(one.sequences.items, other.sequences.items)
    assert np.array_equal(one.times, other.times)


def test_finer_times_order_and_become_seconds() -> None:
    log = make_log([(0, 0, 1_900), (0, 1, 1_100), (0, 2, 900)])
    log.units_per_second = 1_000
    data = prepare(log, "x", least_interactions=1)
    assert data.times.tolist() == [0, 1, 1]
    assert data.item_ids[data.sequences[0]].tolist() == [ITEM_IDS[2], ITEM_IDS[1], ITEM_IDS[0]]


def test_what_was_read_is_written_down() -> None:
    log = make_log([(0, 0, 1)] * 3)
    log.raw_rows, log.bad_rows, log.first_bad, log.left_out = (
        6,
        {"no time": 2},
        {"no time": "f:3"},
        {"behaviour buy": 1},
    )
    log.has_clock = False
    facts = prepare(log, "mine", least_interactions=3).facts
    assert (facts.name, facts.raw_rows, facts.bad_rows, facts.first_bad) == (
        "mine",
        6,
        {"no time": 2},
        {"no time": "f:3"},
    )
    assert facts.left_out == {"behaviour buy": 1}
    assert not facts.has_clock


def test_a_group_of_just_enough_items_stays() -> None:
    groups = np.array(["a"] * 50 + ["b"] * 49 + ["c"])
    assert Counter(merge_infrequent(groups, 50).tolist()) == {"a": 50, INFREQUENT: 50}
    assert merge_infrequent(groups, 1).tolist() == groups.tolist()


def test_parts_that_stay_whole_are_not_copied() -> None:
    part = make_log([(0, 0, 1)] * 3).parts[0]
    assert keep_frequent([part], N_USERS, N_ITEMS, 3)[0] is part


@pytest.mark.parametrize("setting", ["least_interactions", "least_items", "history"])
@pytest.mark.parametrize("value", [0, -1, 2.5])
def test_settings_are_checked_before_the_log_is_touched(setting: str, value: float) -> None:
    log = make_log([(0, 0, 1)] * 5)
    with pytest.raises(InvalidInputError, match=setting):
        prepare(log, "x", **{setting: value})  # type: ignore[arg-type]
    assert len(log.parts[0].users) == 5


def test_the_package_itself_stays_light() -> None:
    program = "import sys, fairsync; assert 'polars' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
