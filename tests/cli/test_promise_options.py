"""Promises on the command line mean what they would in Python."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairsync import Catalog, InvalidInputError, Promise, each
from fairsync.cli.promise_options import read_floors, read_promises

CATALOG = Catalog(
    np.eye(3),
    {
        "category": ["toys", "board games", "a=b"],
        "provider": [7, 8, 9],
        "new": [True, False, True],
        "price": [1.5, 2.0, 9.0],
        "tags": [["eco"], [], ["eco", "sale"]],
    },
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("category=toys at_least=1000", Promise({"category": "toys"}, at_least=1000)),
        ("category='board games' at_least=1_000", Promise({"category": "board games"}, at_least=1000)),
        (
            "category=toys at_least=5 priority=2 max_price=0.2",
            Promise({"category": "toys"}, at_least=5, priority=2, max_price=0.2),
        ),
        ("category=a=b at_most=0.3", Promise({"category": "a=b"}, at_most=0.3)),
        ("provider=7 at_least=5% at_most=30%", Promise({"provider": 7}, at_least=0.05, at_most=0.3)),
        ("new=true tags=eco at_most_per_list=2", Promise({"new": True, "tags": "eco"}, at_most_per_list=2)),
        ("new=No at_least=1 name='old ones'", Promise({"new": False}, at_least=1, name="old ones")),
        ("provider=7 provider=8 at_least=1", Promise({"provider": [7, 8]}, at_least=1)),
        ("provider!=7 provider!=8 at_least=1", Promise({"provider": {"not": [7, 8]}}, at_least=1)),
        ("price>=2 price<=9.5 at_least=1", Promise({"price": {"at_least": 2.0, "at_most": 9.5}}, at_least=1)),
        ("id=2 id=0 at_least=1", Promise({"id": [2, 0]}, at_least=1)),
        ("at_least=1", Promise({}, at_least=1)),
    ],
)
def test_promise(text: str, expected: Promise) -> None:
    assert read_promises(CATALOG, [text], None, None) == [expected]


def test_each_and_files(tmp_path: Path) -> None:
    assert read_promises(CATALOG, None, None, None) is None
    by_provider = each(CATALOG, "provider", at_least=20, where={"new": True})
    assert read_promises(CATALOG, None, ["provider new=true at_least=20"], None) == by_provider
    file = tmp_path / "promises.toml"
    file.write_text(
        '[[promises]]\nwhere = {category = "toys"}\nat_least = 0.05\nname = "play"\n'
        "[[promises]]\nat_most_per_list = 9\n"
        '[[each]]\nattribute = "provider"\nat_least = 20\nwhere = {new = true}\n'
    )
    assert read_promises(CATALOG, ["new=true at_least=1"], None, file) == [
        Promise({"new": True}, at_least=1),
        Promise({"category": "toys"}, at_least=0.05, name="play"),
        Promise({}, at_most_per_list=9),
        *by_provider,
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("catgory=toys at_least=1", "Did you mean 'category'"),
        ("category=toys", "give at_least, at_most or at_most_per_list"),
        ("category=toys at_least=many", "at_least must be a number such as 1000, 0.05 or 5%"),
        ("category=toys at_least=1 at_least=2", "at_least is given twice"),
        ("category=toys at_least=150%", "at_least is 1.5: a float is a share of all slots, at most 1.0"),
        ("category=toys at_lest=1", "'at_lest' is no attribute and no bound. Did you mean 'at_least'"),
        ("toys at_least=1", "'toys' is no condition and no bound"),
        ("category='toys at_least=1", "quotes do not match"),
        ("provider=acme at_least=1", "'provider' has whole numbers, got 'acme'"),
        ("new=maybe at_least=1", "'new' is true or false"),
        ("price=1.5 price<=2 at_least=1", "a value and a range"),
        ("provider=7 provider!=8 at_least=1", "conditions of two kinds"),
    ],
)
def test_errors_name_the_promise(text: str, why: str) -> None:
    with pytest.raises(InvalidInputError, match=why) as error:
        read_promises(CATALOG, [text], None, None)
    assert "--promise" in str(error.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("provider=7 at_least=20", "begin with the name of an attribute"),
        ("", "begin with the name of an attribute"),
        ("price at_least=20", "has numbers, not labels"),
        ("providers at_least=20", "there is no attribute 'providers'"),
        ("provider at_least=20 name=x", "leave out name"),
    ],
)
def test_errors_of_each(text: str, why: str) -> None:
    with pytest.raises(InvalidInputError, match=f"--each .*{why}"):
        read_promises(CATALOG, None, [text], None)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[[promises", "cannot be read as TOML"),
        ("", "there is nothing"),
        ("[[promise]]\nat_least = 1", "there is 'promise'"),
        ("promises = 5", "must be sections"),
        ("[[promises]]\nfloor = 1", "has no key 'floor', only at_least"),
        ("[[each]]\nat_least = 1", "there is no attribute ''"),
        ("[[promises]]\nat_least = -1", "at_least must be"),
    ],
)
def test_errors_of_files(text: str, why: str, tmp_path: Path) -> None:
    file: Any = tmp_path / "promises.toml"
    file.write_text(text)
    with pytest.raises(InvalidInputError, match=why):
        read_promises(CATALOG, None, None, file)
    with pytest.raises(InvalidInputError, match="cannot be read"):
        read_promises(CATALOG, None, None, tmp_path / "none.toml")


def test_floors_are_read_from_files(tmp_path: Path) -> None:
    numbered = Catalog(np.eye(2), [7, -8])
    path = tmp_path / "floors.toml"
    path.write_text("7 = 5\n-8 = 6\n")
    assert read_floors(path, numbered) == {7: 5, -8: 6}
    assert read_floors(path, CATALOG) == {"7": 5, "-8": 6}
    (tmp_path / "a.json").write_text("[1]")
    with pytest.raises(InvalidInputError, match="must hold"):
        read_floors(tmp_path / "a.json", CATALOG)
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(InvalidInputError, match="cannot be read"):
        read_floors(tmp_path / "a.json", CATALOG)
