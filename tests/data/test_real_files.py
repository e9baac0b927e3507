"""Files as they are: other encodings, quotes, ids and times in several forms, lines that cannot be read."""

import itertools
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from fairsync.data import files
from fairsync.data.log import Log
from fairsync.data.prepare import prepare
from fairsync.data.table import Columns, read_table
from fairsync.errors import InvalidInputError

LOG = "user,item,time\nann,thé,1400000300\nbob,thé,1400000100\nann,jam,1400000200\n"
ITEMS = "item,category\nthé,bébé\njam,spreads\n"


def rows(log: Log) -> list[tuple[str, str, int]]:
    return [
        (log.user_ids[int(user)], log.item_ids[int(item)], int(time) // log.units_per_second)
        for part in log.parts
        for user, item, time in zip(*part, strict=True)
    ]


def write(
    folder: Path, log: str | bytes = LOG, items: str | bytes = ITEMS, encoding: str = "utf-8"
) -> tuple[Path, Path]:
    paths = folder / "log.csv", folder / "items.csv"
    for path, text in zip(paths, (log, items), strict=True):
        path.write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
    return paths


@pytest.mark.parametrize("block", [64, 1 << 20])
@pytest.mark.parametrize(
    "encoding",
    ["utf-8", "utf-8-sig", "latin-1", "cp1252", "utf-16", "utf-16-le", "utf-16-be", "utf-32"],
)
def test_encodings_are_detected(encoding: str, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BLOCK_BYTES", block)
    monkeypatch.setattr(files.read_blocks, "__defaults__", (None, block, None))
    expected = rows(read_table(*write(tmp_path)))
    log = read_table(*write(tmp_path, encoding=encoding))
    assert rows(log) == expected
    assert log.item_groups.to_list() == ["bébé", "spreads"]
    assert bool(log.notes) == ("utf-8" not in encoding)
    assert all("was read as" in note for note in log.notes)


def test_an_encoding_can_be_given(tmp_path: Path) -> None:
    paths = write(tmp_path, LOG.replace("thé", "茶"), ITEMS.replace("thé", "茶").replace("bébé", "飲料"), "shift-jis")
    log = read_table(*paths, encoding="shift-jis")
    assert (log.item_ids.to_list(), log.item_groups.to_list(), log.notes) == (["茶", "jam"], ["飲料", "spreads"], [])
    with pytest.raises(InvalidInputError, match="there is no encoding 'latin1000'"):
        read_table(*paths, encoding="latin1000")
    with pytest.raises(InvalidInputError, match=r"log.csv: not utf_16 text|log.csv: not utf-16 text"):
        read_table(*write(tmp_path, b"\xff\xfe" + b"\x00\xd8a\x00" * 20), encoding="utf-16")


def test_one_line_of_a_file_in_utf8_that_is_not(tmp_path: Path) -> None:
    broken = LOG.encode() + b"bob,th\xe9,1400000000\n"
    assert read_table(*write(tmp_path, broken)).bad_rows == {"not UTF-8 text": 1}
    assert read_table(*write(tmp_path, broken), encoding="utf-8").first_bad == {"not UTF-8 text": "log.csv:5"}


def test_a_log_without_times(tmp_path: Path) -> None:
    log = "user,item\nann,thé\nbob,thé\n,thé\nann,jam\nann,thé\n"
    with pytest.raises(InvalidInputError, match=r"no column 'time'.*--no-time"):
        read_table(*write(tmp_path, log))
    read = read_table(*write(tmp_path, log), has_time=False)
    assert rows(read) == [("ann", "thé", 0), ("bob", "thé", 1), ("ann", "jam", 3), ("ann", "thé", 4)]
    assert (read.bad_rows, read.has_clock) == ({"no user": 1}, False)
    data = prepare(read, "x", least_interactions=1, least_items=1)
    assert [data.item_ids[one].tolist() for one in data.sequences] == [["thé", "jam", "thé"], ["thé"]]
    for wrong in ({"has_clock": True}, {"columns": Columns(time="when")}):
        with pytest.raises(InvalidInputError, match="leave out one of the two"):
            read_table(*write(tmp_path, log), has_time=False, **wrong)


def test_quotes_with_a_backslash(tmp_path: Path) -> None:
    log = 'user,item,time\nann,"the \\"best\\" tea, hot",1400000000\n'
    items = 'item,category\n"the ""best"" tea, hot",drinks\n'
    assert rows(read_table(*write(tmp_path, log, items))) == [("ann", 'the "best" tea, hot', 1_400_000_000)]


def test_a_line_of_the_items_that_cannot_be_read(tmp_path: Path) -> None:
    items = ITEMS + 'milk,"open\nham,a,b,c\nrye,bread\n'
    log = read_table(*write(tmp_path, items=items))
    assert log.bad_items == {"quotes that do not end": 1, "too many fields": 1}
    assert log.first_bad_items == {"quotes that do not end": "items.csv:4", "too many fields": "items.csv:5"}
    assert len(rows(log)) == 3
    with pytest.raises(InvalidInputError, match=r"items.csv:4: cannot be read \(quotes that do not end\)"):
        read_table(*write(tmp_path, items=items), strict=True)
    with pytest.raises(InvalidInputError, match=r"3 of 5 lines cannot be read, .*too many fields"):
        read_table(*write(tmp_path, items=ITEMS + "a,b,c,d\n" * 3))


def test_strict_is_for_the_log_too(tmp_path: Path) -> None:
    paths = write(tmp_path, LOG + "ann,,1400000000\n")
    assert read_table(*paths).bad_rows == {"no item": 1}
    with pytest.raises(InvalidInputError, match=r"no item \(first at log.csv:5\)"):
        read_table(*paths, strict=True)


@pytest.mark.parametrize(
    ("log_ids", "item_ids"),
    list(itertools.permutations(([1, 2, 10**17], [1.0, 2.0, 1e17], ["1", "2", "1" + "0" * 17], ["1.0", " 2.00"]), 2)),
)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_ids_in_several_forms(log_ids: list[Any], item_ids: list[Any], kind: str, tmp_path: Path) -> None:
    n = min(len(log_ids), len(item_ids)) if kind == "parquet" else 2  # 1e17 in CSV is text
    log = pl.DataFrame({"user": log_ids[:n], "item": log_ids[:n], "time": [1_400_000_000] * n})
    items = pl.DataFrame({"item": item_ids[:n], "category": ["a", "b", "c"][:n]})
    for frame, name in ((log, "log"), (items, "items")):
        getattr(frame, f"write_{kind}")(tmp_path / f"{name}.{kind}")
    read = read_table(tmp_path / f"log.{kind}", tmp_path / f"items.{kind}")
    assert read.item_ids.to_list() == read.user_ids.to_list() == ["1", "2", "1" + "0" * 17][:n]
    assert read.item_groups.to_list() == ["a", "b", "c"][:n]


def test_ids_that_only_look_like_it_stay(tmp_path: Path) -> None:
    log = "user,item,time\nv1.0,1.05,1400000000\n"
    assert rows(read_table(*write(tmp_path, log, "item,category\n1.05,a\n")))[0][:2] == ("v1.0", "1.05")


def test_spaces_around_fields(tmp_path: Path) -> None:
    log = "user , item, time\n ann , thé ,1400000300 \nbob, thé, 1400000100\n  ,thé,1400000100\n"
    read = read_table(*write(tmp_path, log, "item, category\nthé, drinks\n"))
    assert rows(read) == [("ann", "thé", 1_400_000_300), ("bob", "thé", 1_400_000_100)]
    assert (read.item_groups.to_list(), read.bad_rows) == (["drinks"], {"no user": 1})


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_seconds_and_milliseconds_mixed(kind: str, tmp_path: Path) -> None:
    times = [1_700_179_300, 1_700_179_400_000, 1_700_179_500, 9_999_999_999, 1_700_179_200]
    log = pl.DataFrame({"user": ["ann"] * 5, "item": ["tea", "jam", "tea", "tea", "ham"], "time": times})
    items = pl.DataFrame({"item": ["tea", "jam", "ham"], "category": ["a", "b", "c"]})
    for frame, name in ((log, "log"), (items, "items")):
        getattr(frame, f"write_{kind}")(tmp_path / f"{name}.{kind}")
    read = read_table(tmp_path / f"log.{kind}", tmp_path / f"items.{kind}")
    assert read.bad_rows == {"time out of range (after the year 2100)": 1}
    assert "1 times in another unit" in read.notes[0]
    data = prepare(read, "x", least_interactions=1, least_items=1)
    assert data.times.tolist() == [1_700_179_200, 1_700_179_300, 1_700_179_400, 1_700_179_500]


def test_another_name_for_the_item_in_each_table(tmp_path: Path) -> None:
    log, items = LOG.replace("item", "what"), ITEMS.replace("item", "code")
    columns = Columns(item="what", items_item="code")
    assert rows(read_table(*write(tmp_path, log, items), columns)) == rows(read_table(*write(tmp_path)))
    assert len(rows(read_table(*write(tmp_path, items=ITEMS.replace("item", "id"))))) == 3


ATTRIBUTES = """item,category,provider,new,price,tags
thé,hot,7,true,1.5,a| b|
jam,spreads,,false,2,
jam,spreads,8,true,3,c
"""


def test_further_attributes(tmp_path: Path) -> None:
    columns = Columns(group="category", attributes=("provider", "new", "price"), lists=("tags",))
    log = read_table(*write(tmp_path, items=ATTRIBUTES), columns)
    assert log.group_attribute == "category"
    assert {name: one.to_list() for name, one in log.attributes.items()} == {
        "provider": [7, 8],
        "new": [True, False],
        "price": [1.5, 2.0],
        "tags": [["a", "b"], ["c"]],
    }
    data = prepare(log, "x", least_interactions=1, least_items=1)
    assert data.item_ids.tolist() == ["jam", "thé"]
    assert {name: column.values() for name, column in data.attributes.items()} == {
        "provider": [8, 7],
        "new": [False, True],
        "price": [2.0, 1.5],
        "tags": [["c"], ["a", "b"]],
    }
    for wrong, why in (
        (Columns(attributes=("colour",)), "has no column 'colour'"),
        (Columns(group="category", lists=("category",)), "cannot hold two of item, group, category"),
    ):
        with pytest.raises(InvalidInputError, match=why):
            read_table(*write(tmp_path, items=ATTRIBUTES), wrong)


def test_attributes_of_parquet_keep_their_type(tmp_path: Path) -> None:
    log, _ = write(tmp_path)
    frame = pl.DataFrame(
        {
            "item": ["thé", "jam"],
            "group": ["a", "b"],
            "code": ["07", None],
            "pair": pl.Series([["x", "y"], ["y", "z"]], dtype=pl.Array(pl.String, 2)),
            "words": ["p;q", "q"],
            "sizes": [[1], []],
        }
    )
    frame.write_parquet(tmp_path / "items.parquet")
    columns = Columns(attributes=("code", "pair", "sizes"), lists=("words",), list_separator=";")
    data = prepare(read_table(log, tmp_path / "items.parquet", columns), "x", least_interactions=1, least_items=1)
    assert {name: column.values() for name, column in data.attributes.items()} == {
        "code": [[], ["07"]],
        "pair": [["y", "z"], ["x", "y"]],
        "sizes": [[], [1]],
        "words": [["q"], ["p", "q"]],
    }


def test_a_log_that_has_the_groups_itself(tmp_path: Path) -> None:
    log, _ = write(tmp_path, "user,item,time,category,tags\na,x,1,p,t|u\nb,x,2,q,t\na,x,3,q,\na,y,4,p,\na,y,5,p,x,x\n")
    read = read_table(log, columns=Columns(lists=("tags",)))
    assert read.item_groups.to_list() == ["q", "p"]
    assert read.attributes["tags"].to_list() == [["t", "u"], []]
    assert (read.bad_rows, read.bad_items) == ({"too many fields": 1}, {})
