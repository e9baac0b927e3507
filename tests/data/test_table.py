"""Your own tables: parquet and CSV give the same, columns are found, and times of every kind are understood."""

import os
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from fairsync.data import columns as table
from fairsync.data.dataset import Dataset
from fairsync.data.log import NO_GROUP, Log
from fairsync.data.prepare import prepare
from fairsync.data.table import Columns, read_table
from fairsync.errors import InvalidInputError

DATA = Path(os.environ.get("FAIRSYNC_DATA", Path(__file__).parents[3] / "shared" / "data"))

LOG = pl.DataFrame(
    {
        "user_id": ["ann", "bob", "ann", "ann"],
        "item_id": ["tea", "tea", "jam, red", 'the "best"'],
        "rating": [1.0, 2.0, None, 4.0],
        "timestamp": [1_400_000_300, 1_400_000_100, 1_400_000_200, 1_400_000_200],
    }
)
ITEMS = pl.DataFrame({"item_id": ["tea", "jam, red", 'the "best"'], "category": ["drinks", "spreads", "drinks"]})
ROWS = [("ann", "tea", 1_400_000_300), ("bob", "tea", 1_400_000_100)] + [
    ("ann", item, 1_400_000_200) for item in ("jam, red", 'the "best"')
]


def rows(log: Log) -> list[tuple[str, str, int]]:
    return [
        (log.user_ids[int(user)], log.item_ids[int(item)], int(time) // log.units_per_second)
        for part in log.parts
        for user, item, time in zip(*part, strict=True)
    ]


def write(folder: Path, kind: str = "csv", log: pl.DataFrame = LOG, items: pl.DataFrame = ITEMS) -> tuple[Path, Path]:
    paths = folder / f"log.{kind}", folder / f"items.{kind}"
    for path, frame in zip(paths, (log, items), strict=True):
        if kind == "parquet":
            frame.write_parquet(path)
        else:
            frame.write_csv(path, separator={"csv": ",", "tsv": "\t", "txt": ";"}[kind])
    return paths


@pytest.mark.parametrize("kind", ["csv", "tsv", "txt", "parquet"])
def test_every_kind_of_file_gives_the_same(kind: str, tmp_path: Path) -> None:
    log = read_table(*write(tmp_path, kind))
    assert rows(log) == ROWS
    assert log.item_groups.to_list() == ["drinks", "spreads", "drinks"]
    assert (log.raw_rows, log.bad_rows, log.has_clock) == (4, {}, True)


def test_parquet_in_pieces_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "_ROWS", 3)
    read: list[int] = []
    log = read_table(*write(tmp_path, "parquet"), advance=read.append)
    assert len(log.parts) == 2
    assert rows(log) == ROWS
    assert len(read) == 3


def test_columns_of_any_name_can_be_given(tmp_path: Path) -> None:
    log = LOG.rename({"user_id": "line", "item_id": "fault", "timestamp": "user"}).with_columns(
        pl.lit("x").alias("time")
    )
    items = ITEMS.rename({"item_id": "fault"})
    for kind in ("csv", "parquet"):
        read = read_table(*write(tmp_path, kind, log, items), Columns(user="line", item="fault", time="user"))
        assert rows(read) == ROWS


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_column_that_is_not_there_is_told(kind: str, tmp_path: Path) -> None:
    paths = write(tmp_path, kind, LOG.rename({"timestamp": "moment"}))
    with pytest.raises(InvalidInputError, match=r"has no column 'time', only user_id.*--time-column"):
        read_table(*paths)
    assert rows(read_table(*paths, Columns(time="moment"))) == ROWS
    with pytest.raises(InvalidInputError, match=r"has no column 'who'"):
        read_table(*paths, Columns(user="who", time="moment"))
    with pytest.raises(InvalidInputError, match="one column cannot hold two of"):
        read_table(*paths, Columns(user="moment", time="moment"))


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_bad_rows(kind: str, tmp_path: Path) -> None:
    bad = pl.DataFrame(
        {
            "user_id": [None, "bob", "bob", "bob", "bob"],
            "item_id": ["tea", "", "tea", "tea", "ham"],
            "rating": [0.0] * 5,
            "timestamp": [1, 1, None, -1, 1],
        }
    )
    log = read_table(*write(tmp_path, kind, pl.concat([LOG, LOG, bad])))
    assert log.bad_rows == {"no user": 1, "no item": 1, "no time": 1, "time before 1970": 1, NO_GROUP: 1}
    first = 10 if kind == "csv" else 9
    assert log.first_bad["no user"] == f"log.{kind}:{first}"
    assert log.first_bad["time before 1970"] == f"log.{kind}:{first + 3}"
    assert log.first_bad[NO_GROUP] == "item ham"
    assert rows(log) == ROWS * 2


WHEN = [datetime(2014, 5, 13, 16, 53, 20, 250_000), datetime(2014, 5, 13, 16, 53, 20, 750_000)]
SECONDS = [int(one.replace(tzinfo=UTC).timestamp()) for one in WHEN]


@pytest.mark.parametrize(
    "times",
    [
        pl.Series(SECONDS),
        pl.Series([float(one) for one in SECONDS]),
        pl.Series([1_000 * one for one in SECONDS]),
        pl.Series([10**9 * one for one in SECONDS]),
        pl.Series(WHEN),
        pl.Series(WHEN).dt.cast_time_unit("ns"),
        pl.Series(WHEN).dt.replace_time_zone("UTC"),
        pl.Series([f"{one}" for one in WHEN]),
        pl.Series([f"{one.isoformat()}Z" for one in WHEN]),
        pl.Series([f"{one.isoformat().replace('T16', 'T18')}+02:00" for one in WHEN]),
    ],
)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_times_of_every_kind_become_unix_seconds(times: pl.Series, kind: str, tmp_path: Path) -> None:
    log = pl.DataFrame({"user": ["a", "a"], "item": ["tea", "jam, red"], "time": times})
    data = prepare(read_table(*write(tmp_path, kind, log)), "x", least_interactions=1, least_items=1)
    assert data.times.tolist() == SECONDS
    assert data.facts.has_clock


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize(
    "times",
    [
        pl.Series(WHEN[::-1]),
        pl.Series([SECONDS[0] + 0.5, SECONDS[0] + 0.25]),
        pl.Series([f"{SECONDS[0]}.000000002", f"{SECONDS[0]}.000000001"]),
    ],
    ids=["dates", "floats", "text"],
)
def test_order_within_a_second_is_kept(times: pl.Series, kind: str, tmp_path: Path) -> None:
    log = pl.DataFrame({"user": ["a", "a"], "item": ["tea", "jam, red"], "time": times})
    data = prepare(read_table(*write(tmp_path, kind, log)), "x", least_interactions=1, least_items=1)
    assert data.item_ids[data.sequences[0]].tolist() == ["jam, red", "tea"]
    assert data.times.tolist() == [SECONDS[0]] * 2


@pytest.mark.parametrize("kind", [pl.Categorical, pl.Enum(["2000-11-01", "2000-11-02"]), pl.Binary])
def test_words_in_other_clothes(kind: pl.DataType, tmp_path: Path) -> None:
    times = pl.Series(["2000-11-02", "2000-11-01"]).cast(kind)
    words = pl.Series(["a", "b"]).cast(pl.Binary)
    paths = write(tmp_path, "parquet", pl.DataFrame({"user": words, "item": ["tea", "tea"], "time": times}))
    assert rows(read_table(*paths)) == [("a", "tea", 973_123_200), ("b", "tea", 973_036_800)]


@pytest.mark.parametrize("column", ["user_id", "item_id", "timestamp", "category"])
@pytest.mark.parametrize(
    "odd",
    [
        pl.Series([[1, 2]]),
        pl.Series([[1, 2]], dtype=pl.Array(pl.Int64, 2)),
        pl.Series([{"a": 1}]),
        pl.Series([1]).cast(pl.Duration),
    ],
    ids=lambda series: str(series.dtype),
)
def test_columns_of_an_odd_kind(odd: pl.Series, column: str, tmp_path: Path) -> None:
    log, items = (frame.with_columns(odd.new_from_index(0, len(frame)).alias(column)) for frame in (LOG, ITEMS))
    paths = write(tmp_path, "parquet", log if column in LOG else LOG, items if column == "category" else ITEMS)
    with pytest.raises(InvalidInputError, match=rf"the column '{column}' holds (List|Array|Struct|Duration).*: give "):
        read_table(*paths)


@pytest.mark.parametrize("odd", [pl.Series([True]), pl.Series([1]).cast(pl.Time)], ids=lambda one: str(one.dtype))
def test_words_that_are_no_times(odd: pl.Series, tmp_path: Path) -> None:
    paths = write(tmp_path, "parquet", LOG.with_columns(timestamp=odd.new_from_index(0, len(LOG))))
    with pytest.raises(InvalidInputError, match="give dates, Unix seconds or positions"):
        read_table(*paths)


def test_days(tmp_path: Path) -> None:
    log = pl.DataFrame({"user": ["a"], "item": ["tea"], "time": ["2000-11-01"]})
    assert prepare(read_table(*write(tmp_path, "csv", log)), "x", least_interactions=1).times.tolist() == [973_036_800]


def test_a_date_among_numbers_is_a_bad_row(tmp_path: Path) -> None:
    log = LOG.with_columns(pl.col("timestamp").cast(pl.String))
    log = pl.concat([log, log.head(1).with_columns(timestamp=pl.lit("2014-05-13"))])
    assert read_table(*write(tmp_path, "csv", log)).bad_rows == {"time is neither a number nor a date": 1}


def test_small_numbers_are_places_unless_it_is_said(tmp_path: Path) -> None:
    paths = write(tmp_path, "csv", LOG.with_columns(timestamp=pl.Series([2, 0, 1, 1])))
    assert not read_table(*paths).has_clock
    assert read_table(*paths, has_clock=True).has_clock
    assert not read_table(*write(tmp_path), has_clock=False).has_clock


def test_the_group_that_most_rows_name(tmp_path: Path) -> None:
    more = pl.DataFrame({"item_id": ["tea", "tea", "jam, red", "jam, red"], "category": ["hot", "hot", "sweet", None]})
    log = read_table(*write(tmp_path, items=pl.concat([ITEMS, more])))
    assert log.item_groups.to_list() == ["hot", "spreads", "drinks"]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    log, items = write(tmp_path, "parquet")
    log.write_bytes(log.read_bytes()[:-50])
    with pytest.raises(InvalidInputError, match="cannot be read as parquet"):
        read_table(log, items)
    with pytest.raises(InvalidInputError, match="does not exist"):
        read_table(tmp_path / "none.csv", items)
    (tmp_path / "head.csv").write_text("user,item,time\n")
    with pytest.raises(InvalidInputError, match="has no rows"):
        read_table(tmp_path / "head.csv", items)
    LOG.clear().write_parquet(tmp_path / "head.parquet")
    with pytest.raises(InvalidInputError, match="has no rows"):
        read_table(tmp_path / "head.parquet", items)
    (tmp_path / "twice.csv").write_text("user,item,item,time\na,b,c,1\n")
    with pytest.raises(InvalidInputError, match="same name"):
        read_table(tmp_path / "twice.csv", items)
    log, items = write(tmp_path)
    with pytest.raises(InvalidInputError, match=r"has no column 'group'"):
        read_table(log, log)
    items.write_text("item,group\ntea,drinks\njam,a,b\n")
    with pytest.raises(InvalidInputError, match=r"items.csv:3: cannot be read \(too many fields\)"):
        read_table(log, items, strict=True)
    items.write_text("item,group\n")
    with pytest.raises(InvalidInputError, match="item without a group"):
        read_table(log, items)


def prepared(name: str) -> tuple[Dataset, pl.DataFrame]:
    folder = DATA / name
    if not folder.exists():
        pytest.skip("the real data are not here")
    paths = folder / "interactions.parquet", folder / "items.parquet"
    source = pl.read_parquet(paths[0]).rename({"timestamp": "time"})
    return prepare(read_table(*paths), name), source


def test_amazon_beauty() -> None:
    data, source = prepared("amazon-beauty")
    facts = data.facts
    assert (facts.users, facts.items, facts.interactions, facts.groups) == (22_363, 12_101, 198_502, 65)
    assert not facts.has_clock
    in_order = source.sort("user", "time", maintain_order=True)
    assert data.item_ids[data.sequences.items].tolist() == in_order["item"].to_list()
    assert data.times.tolist() == in_order["time"].to_list()


def test_tafeng() -> None:
    data, source = prepared("tafeng")
    assert (source["user"].n_unique(), source["item"].n_unique(), source.height) == (32_266, 23_812, 817_741)
    while True:  # the plainest way to a set in which everybody has five
        kept = source.filter(pl.len().over("user") >= 5, pl.len().over("item") >= 5)
        if kept.height == source.height:
            break
        source = kept
    facts = data.facts
    assert (facts.users, facts.items) == (source["user"].n_unique(), source["item"].n_unique())
    assert facts.raw_rows == 817_741 == facts.interactions + facts.left_out["too few interactions"]
    in_order = source.sort("user", "time", maintain_order=True)
    assert data.item_ids[data.sequences.items].tolist() == in_order["item"].to_list()
    assert data.times.tolist() == in_order["time"].to_list()
    assert facts.has_clock
