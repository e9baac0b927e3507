"""A promise checks what it is given, and round-trips."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fairsync as fs


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"priority": 3},
        {"max_price": 0.25},
        {"priority": np.int64(2), "max_price": np.float32(0.5)},
        {"at_most": 0.5, "at_most_per_list": 2, "name": "mine", "priority": 2},
    ],
)
def test_a_promise_round_trips(given: dict[str, Any]) -> None:
    promise = fs.Promise({"new": True}, at_least=7, **given)
    values = promise.to_dict()
    again = fs.Promise.from_dict(values)
    assert again == promise
    assert {type(values["priority"]), type(values["max_price"])} <= {int, float, type(None)}


def test_a_promise_of_an_earlier_version_is_read() -> None:
    old = {"where": {"new": True}, "at_least": 7, "at_most": None, "at_most_per_list": None, "name": "", "each": None}
    assert fs.Promise.from_dict(old) == fs.Promise({"new": True}, at_least=7)


@pytest.mark.parametrize("priority", [0, -1, 1.0, 1.5, True, "1", None])
def test_priorities_are_whole_numbers_from_one(priority: Any) -> None:
    with pytest.raises(fs.InvalidInputError, match="priority must be 1"):
        fs.Promise({"new": True}, at_least=7, priority=priority)


@pytest.mark.parametrize("max_price", [0, -0.5, float("nan"), float("inf"), True, "0.2"])
def test_a_max_price_is_a_number_above_zero(max_price: Any) -> None:
    with pytest.raises(fs.InvalidInputError, match="max_price must be a number above 0"):
        fs.Promise({"new": True}, at_least=7, max_price=max_price)


def test_a_max_price_needs_a_floor() -> None:
    with pytest.raises(fs.InvalidInputError, match="give at_least"):
        fs.Promise({"new": True}, at_most=7, max_price=0.5)


def test_each_gives_priority_and_max_price_to_every_label() -> None:
    catalog = fs.Catalog(np.eye(3), {"brand": ["a", "b", "a"]})
    made = fs.each(catalog, "brand", at_least=5, priority=2, max_price=0.1)
    assert [(one.priority, one.max_price) for one in made] == [(2, 0.1), (2, 0.1)]
    assert repr(made[0]) == "Promise(brand=a: at least 5, priority 2, max price 0.1)"


def test_each_says_which_attribute_may_be_meant() -> None:
    catalog = fs.Catalog(np.eye(2), {"provider": ["acme", "best"]})
    with pytest.raises(fs.InvalidInputError, match=r"no attribute 'providr'. Did you mean 'provider'"):
        fs.each(catalog, "providr", at_least=1)
    with pytest.raises(fs.InvalidInputError, match=r"at_least is 100.0: a float is a share"):
        fs.Promise({"provider": "acme"}, at_least=100.0)


@pytest.mark.parametrize("wrap", [lambda one: [one], lambda one: {"not": one}, lambda one: (one,)])
def test_conditions_nested_without_end_are_refused(wrap: Callable[[Any], Any]) -> None:
    value: Any = "a"
    for _ in range(900):  # as deep as JSON is read
        value = wrap(value)
    with pytest.raises(fs.InvalidInputError, match="nested too deeply"):
        fs.Promise({"brand": value}, at_least=7)
