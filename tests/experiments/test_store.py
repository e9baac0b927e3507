"""Finished cells: found by what they are about, whole or not there at all."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairsync.errors import InvalidInputError
from fairsync.experiments import store as module
from fairsync.experiments.store import Store


def test_a_cell_is_computed_once(tmp_path: Path) -> None:
    computed: list[int] = []

    def compute() -> dict[str, float]:
        computed.append(1)
        return {"value": 0.1 + 0.2}

    first = Store(tmp_path).cell("sums", {"a": 1, "b": (2, 3)}, compute)
    second = Store(tmp_path).cell("sums", {"b": [2, 3], "a": 1}, compute)
    assert first == second == {"value": 0.1 + 0.2}  # to the last digit
    assert len(computed) == 1
    Store(tmp_path).cell("sums", {"a": 1, "b": (2, 4)}, compute)
    Store(tmp_path).cell("products", {"a": 1, "b": (2, 3)}, compute)
    assert len(computed) == 3


def test_the_first_time_gives_what_later_times_give(tmp_path: Path) -> None:
    assert Store(tmp_path).cell("pair", {}, lambda: (1, 2)) == [1, 2]  # a list, as JSON will have it


def test_another_version_of_the_program_computes_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Store(tmp_path).cell("x", {"a": 1}, lambda: 1)
    monkeypatch.setattr(module, "__version__", "later")
    assert Store(tmp_path).cell("x", {"a": 1}, lambda: 2) == 2


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object()])
def test_what_json_cannot_hold_is_not_kept(value: object, tmp_path: Path) -> None:
    with pytest.raises((ValueError, TypeError)):
        Store(tmp_path).cell("x", {}, lambda: value)
    assert not list(tmp_path.rglob("*.json"))


def test_a_computation_that_failed_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        Store(tmp_path).cell("x", {}, lambda: 1 / 0)
    assert Store(tmp_path).find("x", {}) == (False, None)


def test_a_damaged_cell_is_told_with_its_path(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.cell("x", {}, lambda: 1)
    [path] = tmp_path.rglob("*.json")
    path.write_text('{"value": [1, 2')
    with pytest.raises(InvalidInputError, match=rf"{path.name} is damaged .*remove it"):
        store.cell("x", {}, lambda: 1)


def test_a_file_says_what_it_is_about(tmp_path: Path) -> None:
    Store(tmp_path).cell("x", {"model": "svd"}, lambda: 1)
    [path] = tmp_path.rglob("*.json")
    assert json.loads(path.read_text())["key"]["model"] == "svd"


keys = st.dictionaries(st.sampled_from("abc"), st.none() | st.integers(0, 3) | st.text(max_size=2), max_size=3)


@given(keys, keys)
def test_different_keys_never_meet(
    tmp_path_factory: pytest.TempPathFactory, one: dict[str, object], two: dict[str, object]
) -> None:
    store = Store(tmp_path_factory.mktemp("store"))
    store.cell("x", one, lambda: "one")
    assert store.cell("x", two, lambda: "two") == ("one" if one == two else "two")
