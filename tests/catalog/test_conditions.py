"""Conditions against a plain reading of them."""

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairsync.catalog import Catalog
from fairsync.catalog.attributes import make_column
from fairsync.catalog.conditions import parse_conditions
from fairsync.catalog.lazy_selection import LazySelection
from fairsync.errors import InvalidInputError

LABELS = ["DE", "AT", "CH", "FR"]


def plainly(item: dict[str, Any], where: dict[str, Any]) -> bool:
    """Return whether one item meets the conditions, in the words of the documentation."""
    for name, wanted in where.items():
        mine = item[name] if isinstance(item[name], list) else [item[name]]
        if isinstance(wanted, dict) and "not" in wanted:
            none_of = wanted["not"] if isinstance(wanted["not"], list) else [wanted["not"]]
            if any(label in none_of for label in mine):
                return False
        elif isinstance(wanted, dict):
            if not wanted.get("at_least", -1e9) <= mine[0] <= wanted.get("at_most", 1e9):
                return False
        else:
            one_of = wanted if isinstance(wanted, list) else [wanted]
            if not any(label in one_of for label in mine):
                return False
    return True


label = st.sampled_from([*LABELS, "nowhere"])
labels = st.one_of(label, st.lists(label, min_size=1, max_size=3))
number = st.one_of(st.integers(-3, 3), st.floats(-3, 3))
ranges = st.fixed_dictionaries({}, optional={"at_least": number, "at_most": number}).filter(bool)
conditions = st.fixed_dictionaries(
    {},
    optional={
        "region": st.one_of(labels, labels.map(lambda one: {"not": one})),
        "tags": st.one_of(labels, labels.map(lambda one: {"not": one})),
        "price": st.one_of(number, ranges, st.lists(number, min_size=1).map(lambda some: {"not": some})),
        "year": st.one_of(st.integers(-3, 3), ranges),
        "new": st.booleans(),
    },
)


@settings(max_examples=300, deadline=None)
@given(where=conditions, seed=st.integers(0, 2**32))
def test_an_item_is_selected_if_it_meets_all_conditions(where: dict[str, Any], seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 12))
    attributes: dict[str, Any] = {
        "region": [str(one) for one in rng.choice(LABELS, n)],
        "tags": [[str(one) for one in rng.choice(LABELS, rng.integers(3))] for _ in range(n)],
        "price": [float(one) for one in rng.integers(-3, 4, n)],
        "year": [int(one) for one in rng.integers(-3, 4, n)],
        "new": [bool(one) for one in rng.integers(0, 2, n)],
    }
    chosen = Catalog(np.ones((n, 1)), attributes).select(where)
    expected = [plainly({name: column[i] for name, column in attributes.items()}, where) for i in range(n)]
    assert (chosen is None) == (not where)
    if chosen is not None:
        assert chosen.mask.tolist() == expected
        assert len(chosen) == sum(expected)
        again = Catalog(np.ones((n, 1)), attributes).select(chosen.where or {})
        assert again is not None
        assert again.mask.tolist() == expected, "a selection knows its condition"
        columns = {name: make_column(name, values, n) for name, values in attributes.items()}
        given = parse_conditions(where, columns)
        lazy = LazySelection(given, [columns[one.attribute] for one in given], rng.integers(n, size=3))
        for rows in (rng.integers(n, size=5), slice(n // 3, n // 2 + 1)):
            assert lazy.has(rows).tolist() == np.array(expected)[rows].tolist()
        assert (lazy.share > 0) == any(expected)
        assert lazy.mask.tolist() == expected


CATALOG = Catalog(
    np.eye(3),
    {"region": ["DE", "AT", "CH"], "price": [1.0, 2.0, 3.0], "new": [True, False, True], "tags": [["a"], [], ["b"]]},
)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"regoin": "DE"}, "Did you mean 'region'"),
        ({"colour": "DE"}, "There are 'region', 'price', 'new', 'tags'"),
        ("DE", "must be a dict"),
        ({"region": 3}, "convert it"),
        ({"region": None}, "convert it"),
        ({"region": []}, "empty list"),
        ({"new": 1}, "convert it"),
        ({"price": "cheap"}, "convert it"),
        ({"price": float("nan")}, "convert it"),
        ({"price": {"at_most": "3"}}, "must be a number"),
        ({"price": {"at_most": float("nan")}}, "must be a number"),
        ({"price": {"below": 3}}, "'at_least' and 'at_most'"),
        ({"price": {}}, "'at_least' and 'at_most'"),
        ({"price": {"not": 1, "at_most": 3}}, "'at_least' and 'at_most'"),
        ({"region": {"at_most": 3}}, "has no numbers"),
        ({"new": {"at_most": 3}}, "has no numbers"),
        ({"tags": {"at_most": 3}}, "has no numbers"),
    ],
)
def test_conditions_without_a_meaning_are_refused(where: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        CATALOG.select(where)


def test_a_bool_is_no_number() -> None:
    catalog = Catalog(np.eye(2), {"number": [0, 1], "flag": [False, True]})
    assert catalog.select({"number": 1}).rows.tolist() == [1]  # type: ignore[union-attr]
    assert catalog.select({"flag": True}).rows.tolist() == [1]  # type: ignore[union-attr]
    with pytest.raises(InvalidInputError):
        catalog.select({"number": True})


@pytest.mark.parametrize("ids", [None, [7, 5, 6, 4], ["x", "y", "z", "w"]])
def test_conditions_name_items_by_their_ids(ids: list[Any] | None) -> None:
    catalog = Catalog(np.eye(4), {"kind": ["a", "a", "b", "b"]}, ids)
    first, second, third, _ = catalog.ids.tolist()
    for where, rows in (
        ({"id": first}, [0]),
        ({"id": [third, first, first]}, [0, 2]),
        ({"id": np.array([third])}, [2]),
        ({"id": {"not": [first, second]}}, [2, 3]),
        ({"id": [third, first], "kind": "b"}, [2]),
        ({"id": "nobody" if isinstance(first, str) else 99}, []),
    ):
        found = catalog.select(where)
        assert found is not None
        assert found.rows.tolist() == rows
        assert catalog.part(np.array([0, 1, 2, 3])).select(where).rows.tolist() == rows  # type: ignore[union-attr]
        assert pickle.loads(pickle.dumps(catalog)).select(where).rows.tolist() == rows
    with pytest.raises(InvalidInputError, match=r"'id' has .* values, and the condition has"):
        catalog.select({"id": 3 if isinstance(first, str) else "x"})
    with pytest.raises(InvalidInputError, match="give a value or a list"):
        catalog.select({"id": {"at_least": 3}})
