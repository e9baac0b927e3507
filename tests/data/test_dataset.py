"""What is saved is what is loaded; anything else is refused, and nothing is lost on the way."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fairsync.catalog.attributes import make_column
from fairsync.data.dataset import Dataset, Facts, check_target
from fairsync.errors import InvalidInputError
from fairsync.ragged import Ragged


@pytest.fixture
def data() -> Dataset:
    facts = Facts(
        "tiny", 3, 2, 2, 5, raw_rows=9, bad_rows={"no time": 1}, first_bad={"no time": "f:2"}, left_out={"x": 3}
    )
    return Dataset(
        facts,
        np.array(["01", "1", "ü"]),
        np.array(["x", "y, z"]),
        np.array(["g", "h"]),
        Ragged(np.array([0, 1, 1, 0, 0], np.int32), np.array([0, 2, 2, 5])),
        np.array([5, 2**40, 1, 2, 3]),
    )


def test_round_trip(data: Dataset, tmp_path: Path) -> None:
    data.save(tmp_path / "new" / "tiny")
    read = Dataset.load(tmp_path / "new" / "tiny")
    assert read.facts == data.facts
    assert read.n_items == 2
    for name in ("user_ids", "item_ids", "item_groups", "times"):
        assert np.array_equal(getattr(read, name), getattr(data, name)), name
    assert np.array_equal(read.sequences.items, data.sequences.items)
    assert np.array_equal(read.sequences.offsets, data.sequences.offsets)
    assert [array.dtype.str[1:3] for array in (read.sequences.items, read.times, read.user_ids)] == ["i4", "i8", "U2"]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["tiny"]


def test_attributes_and_files_of_an_earlier_program(data: Dataset, tmp_path: Path) -> None:
    columns = {"tags": make_column("tags", [["a", "b"], []], 2), "price": make_column("price", [1.5, 2.0], 2)}
    facts = replace(data.facts, group_attribute="category", notes=["read as UTF-16"], bad_items={"too many fields": 1})
    replace(data, facts=facts, attributes=columns).save(tmp_path / "new")
    read = Dataset.load(tmp_path / "new")
    assert read.facts == facts
    catalog = read.catalog(np.eye(2, dtype=np.float32))
    assert {name: column.values() for name, column in catalog.attributes.items()} == {
        "category": ["g", "h"],
        "tags": [["a", "b"], []],
        "price": [1.5, 2.0],
    }
    data.save(tmp_path / "old")
    path = tmp_path / "old" / "facts.json"
    later = ("group_attribute", "notes", "bad_items", "first_bad_items")
    path.write_text(json.dumps({key: one for key, one in json.loads(path.read_text()).items() if key not in later}))
    old = Dataset.load(tmp_path / "old")
    assert old.facts == data.facts
    assert list(old.catalog(np.eye(2)).attributes) == ["group"]


def test_saving_again_replaces(data: Dataset, tmp_path: Path) -> None:
    data.save(tmp_path / "tiny")
    replace(data, facts=replace(data.facts, name="other")).save(tmp_path / "tiny")
    assert Dataset.load(tmp_path / "tiny").facts.name == "other"
    assert [path.name for path in tmp_path.iterdir()] == ["tiny"]


def test_a_save_that_fails_leaves_what_was_there(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data.save(tmp_path / "tiny")

    def fail(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(pl.DataFrame, "write_parquet", fail)
    with pytest.raises(OSError, match="disk full"):
        replace(data, facts=replace(data.facts, name="other")).save(tmp_path / "tiny")
    monkeypatch.undo()
    assert Dataset.load(tmp_path / "tiny").facts.name == "tiny"
    assert [path.name for path in tmp_path.iterdir()] == ["tiny"]


def test_other_peoples_folders_are_not_touched(data: Dataset, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(InvalidInputError, match="choose another folder"):
        data.save(tmp_path)
    with pytest.raises(InvalidInputError, match="choose another folder"):
        data.save(tmp_path / "thesis.txt")
    assert (tmp_path / "thesis.txt").read_text() == "years of work"
    data.save(tmp_path / "tiny")
    (tmp_path / "tiny" / "notes.txt").write_text("not ours")
    with pytest.raises(InvalidInputError, match="holds something else"):
        data.save(tmp_path / "tiny")
    assert Dataset.load(tmp_path / "tiny").facts.name == "tiny"
    (tmp_path / "empty").mkdir()
    check_target(tmp_path / "empty")


def test_what_is_no_data_set_is_refused(data: Dataset, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="run 'fairsync prepare' first"):
        Dataset.load(tmp_path / "none")
    data.save(tmp_path / "tiny")
    facts = tmp_path / "tiny" / "facts.json"
    good = json.loads(facts.read_text(encoding="utf-8"))
    for wrong, why in (
        ({**good, "version": 99}, "has version 99"),
        ({**good, "interactions": 4}, "do not agree"),
        ({**good, "items": 1}, "do not agree"),
        ({key: value for key, value in good.items() if key != "history"}, "damaged"),
        ([], "damaged"),
    ):
        facts.write_text(json.dumps(wrong), encoding="utf-8")
        with pytest.raises(InvalidInputError, match=why):
            Dataset.load(tmp_path / "tiny")
    facts.write_text("{", encoding="utf-8")
    with pytest.raises(InvalidInputError, match="damaged"):
        Dataset.load(tmp_path / "tiny")
    facts.write_text(json.dumps(good), encoding="utf-8")
    (tmp_path / "tiny" / "items.parquet").write_bytes(b"PAR1")
    with pytest.raises(InvalidInputError, match="cannot be read"):
        Dataset.load(tmp_path / "tiny")
