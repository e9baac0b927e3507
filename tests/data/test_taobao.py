"""Taobao's log: the format as published, categories that disagree, bad rows, and the real sample."""

import gzip
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairsync.data import files, taobao
from fairsync.data.log import Log
from fairsync.data.prepare import prepare
from fairsync.data.taobao import BEHAVIOURS, read_taobao
from fairsync.errors import InvalidInputError

DATA = Path(os.environ.get("FAIRSYNC_DATA", Path(__file__).parents[3] / "shared" / "data"))
SAMPLE = DATA / "taobao-sample" / "UserBehavior.csv.gz"

Row = tuple[int, int, int, str, int]


def write(folder: Path, *lines: str) -> Path:
    path = folder / "UserBehavior.csv"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def rows(log: Log) -> list[tuple[int, int, int]]:
    return [(int(user), int(item), int(time)) for part in log.parts for user, item, time in zip(*part, strict=True)]


drawn = st.tuples(
    st.integers(0, 5), st.integers(0, 5), st.integers(0, 3), st.sampled_from(BEHAVIOURS), st.integers(0, 2**31)
)


@given(st.lists(drawn, min_size=1, max_size=40), st.sets(st.sampled_from(BEHAVIOURS), min_size=1))
def test_against_a_plain_reading(tmp_path_factory: pytest.TempPathFactory, lines: list[Row], chosen: set[str]) -> None:
    path = write(tmp_path_factory.mktemp("taobao"), *(",".join(map(str, line)) for line in lines))
    log = read_taobao(path, sorted(chosen))
    taken = [line for line in lines if line[3] in chosen]
    assert rows(log) == [(user, item, time) for user, item, _, _, time in taken]
    assert log.left_out == Counter(f"behaviour {line[3]}" for line in lines if line[3] not in chosen)
    for wanted in {item for _, item, _, _, _ in taken}:
        categories = [category for _, item, category, _, _ in taken if item == wanted]
        assert log.item_groups[wanted] == str(max(categories, key=categories.count))  # of equals, max takes the first
    assert (log.raw_rows, log.bad_rows) == (len(lines), {})


def test_bad_rows_are_counted_by_reason_with_the_first_line(tmp_path: Path) -> None:
    good = ["1,7,30,pv,1511658000", "2,8,31,pv,1511658001"] * 7
    bad = {
        "no time": ["1,7,30,pv", "1,7"],
        "too many fields": ["1,7,30,pv,1511658000,0"],
        "time is not a number": ["1,7,30,pv,now", "1,7,30,pv,1511658000.5"],
        "time before 1970": ["1,7,30,pv,-3"],
        "user is not a number": ["x,7,30,pv,1511658000", "-1,7,30,pv,1511658000"],
        "item is not a number": [f"1,{2**27},30,pv,1511658000"],
        "category is not a number": ["1,7,,pv,1511658000"],
        "unknown behaviour": ["1,7,30,view,1511658000"],
        "no user": [",7,30,pv,1511658000"],
    }
    lines = [line for some in bad.values() for line in some]
    log = read_taobao(write(tmp_path, *good, "", *lines))
    assert log.bad_rows == {reason: len(some) for reason, some in bad.items()}
    assert log.first_bad == {reason: f"UserBehavior.csv:{16 + lines.index(some[0])}" for reason, some in bad.items()}
    assert log.raw_rows == len(good) + len(lines)
    assert rows(log) == [(1, 7, 1511658000), (2, 8, 1511658001)] * 7


def test_blocks_and_votes_in_pieces_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    lines = [
        f"{user},{item},{category},pv,{time}"
        for user, item, category, time in zip(
            *(rng.integers(most, size=3_000) for most in (50, 60, 3, 1000)), strict=True
        )
    ]
    path = write(tmp_path, *lines[:2_000], "broken", *lines[2_000:])
    whole = read_taobao(path)
    monkeypatch.setattr("fairsync.data.majority_vote._MANY", 100)
    monkeypatch.setattr(
        taobao, "read_blocks", lambda path, advance: files.read_blocks(path, advance, block_bytes=1_000)
    )
    pieces = read_taobao(path)
    assert len(pieces.parts) > 30
    assert rows(pieces) == rows(whole)
    assert pieces.item_groups.to_list() == whole.item_groups.to_list()
    assert (pieces.bad_rows, pieces.first_bad) == (whole.bad_rows, whole.first_bad)
    assert set(pieces.first_bad.values()) == {"UserBehavior.csv:2001"}


def test_what_is_no_such_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"UserBehavior.csv:1\).*A line is user,item,category,behaviour"):
        read_taobao(write(tmp_path, *["user;item;time", "1;2;3"] * 10))
    half = ["1,7,30,pv,1511658000"] * 10 + ["1,7,30,pv,never"] * 11
    with pytest.raises(InvalidInputError, match=r"11 of the first 21 rows .* time is not a number \(first at .*:11\)"):
        read_taobao(write(tmp_path, *half))
    assert read_taobao(write(tmp_path, *half[:-1])).bad_rows == {"time is not a number": 10}
    with pytest.raises(InvalidInputError, match="behaviours must be some of pv, buy, cart, fav, got 'view'"):
        read_taobao(write(tmp_path, *half), ["view"])


def test_nothing_of_the_behaviour_is_left(tmp_path: Path) -> None:
    log = read_taobao(write(tmp_path, "1,7,30,pv,1511658000"), ["buy"])
    assert log.left_out == {"behaviour pv": 1}
    with pytest.raises(InvalidInputError, match="Nothing is left"):
        prepare(log, "taobao")


@pytest.mark.skipif(not SAMPLE.exists(), reason="the real data are not here")
def test_the_real_sample_against_a_plain_reading() -> None:
    lines = [line.split(",") for line in gzip.decompress(SAMPLE.read_bytes()).decode().splitlines()]
    assert len(lines) == 71_777
    log = read_taobao(SAMPLE)
    taken = [line for line in lines if line[3] == "pv"]
    assert rows(log) == [(int(line[0]), int(line[1]), int(line[4])) for line in taken]
    assert sum(log.left_out.values()) + len(taken) == log.raw_rows == 71_777
    assert log.bad_rows == {}

    data = prepare(log, "sample", least_interactions=2, least_items=200, history=50)
    facts = data.facts
    assert facts.raw_rows == facts.interactions + sum(facts.left_out.values())
    assert Counter(data.sequences.items.tolist()).most_common()[-1][1] >= 2
    category = {line[1]: line[2] for line in taken}
    assert facts.groups == 1  # none of its categories has 200 items
    assert set(data.item_ids) <= set(category)
