"""Promises against a catalog: the same atoms as item by item, and clear errors for promises that cannot be used."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fairsync as fs
from fairsync.catalog.changes import upsert_items
from fairsync.policies.base import NO_CAP
from fairsync.promises import is_certificate, resolve_promises
from fairsync.promises.selected_rows import SelectedRows

N = 40


def make_catalog(seed: int = 0, n: int = N) -> fs.Catalog:
    rng = np.random.default_rng(seed)
    return fs.Catalog(
        rng.normal(size=(n, 3)),
        {
            "category": rng.choice(["toys", "books", "games"], size=n),
            "provider": rng.choice(["acme", "best", "corp", "dino"], size=n),
            "tags": [rng.choice(["sale", "eco", "gift"], size=rng.integers(0, 4)).tolist() for _ in range(n)],
            "new": rng.random(n) < 0.4,
            "price": rng.uniform(1, 9, size=n),
        },
    )


WHERE: list[dict[str, Any]] = [
    {},
    {"category": "toys"},
    {"tags": "sale"},
    {"category": "toys", "provider": "acme"},
    {"category": "toys", "tags": "eco", "new": True},
    {"provider": ["acme", "best"]},
    {"provider": {"not": "acme"}, "new": False},
    {"price": {"at_most": 5.0}, "tags": "gift"},
    {"tags": "sale", "price": {"at_least": 2.0}, "category": "books"},
]


@pytest.mark.parametrize("where", WHERE, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_rows_are_those_that_the_catalog_selects(where: dict[str, Any], seed: int) -> None:
    catalog = make_catalog(seed)
    selection = catalog.select(where)
    expected = np.arange(N) if selection is None else selection.rows
    assert SelectedRows(catalog).of(where).tolist() == expected.tolist()


def test_numbers_of_promises() -> None:
    promises = [
        fs.Promise({"category": "toys"}, at_least=0.05, at_most=0.30),
        fs.Promise({"new": True}, at_least=7, at_most=1.0),
        fs.Promise({"provider": "acme"}, at_most_per_list=2),
        fs.Promise({"provider": "best"}, at_most_per_list=99),
    ]
    catalog = make_catalog()
    resolved = resolve_promises(catalog, promises, 4, 25, 8, auto_restart=False)
    terms = resolved.terms
    assert terms.floors.tolist() == [5, 7, 0, 0]
    assert terms.caps is not None
    assert terms.caps.tolist() == [30, NO_CAP, NO_CAP, NO_CAP]  # a cap that excludes nothing is none
    assert terms.list_limits is not None
    assert terms.list_limits.tolist() == [4, 4, 2, 4]
    assert terms.capacities.tolist() == np.minimum(resolved.atoms.sizes, 4).tolist()
    assert not terms.auto_restart
    assert terms.certain is None
    assert terms.certificate is not None
    assert is_certificate(terms, terms.certificate, terms.floors, terms.caps, 25)
    assert resolve_promises(catalog, promises[1:2], 4, 25, 8).terms.caps is None


def test_a_promise_beside_a_series_with_the_same_conditions_is_numbered() -> None:
    catalog = make_catalog()
    series = fs.each(catalog, "provider", at_least=2)
    resolved = resolve_promises(catalog, [fs.Promise({"provider": "acme"}, at_least=9), *series], 4, 25, 8)
    assert resolved.names == [
        "provider=acme", "provider=acme (2)", "provider=best", "provider=corp", "provider=dino",
    ]  # fmt: skip
    assert resolved.terms.floors.tolist() == [9, 2, 2, 2, 2]


def test_new_labels_get_promises_and_codes_stay() -> None:
    catalog = make_catalog()
    promises = [
        *fs.each(catalog, "provider", at_least=2),
        *fs.each(catalog, "provider", at_least=1, where={"new": True}),
        fs.Promise({"category": "toys"}, at_least=5),
    ]
    before = resolve_promises(catalog, promises[1:], 4, 25, 8)  # a label without a promise gets none later
    same = resolve_promises(catalog, before.promises, 4, 25, 8, before=before)
    assert same.promises == before.promises
    assert (same.atoms.atom_of == before.atoms.atom_of).all()
    row = {"category": ["toys"], "provider": ["epic"], "tags": [[]], "new": [False], "price": [1.0]}
    grown = upsert_items(catalog, np.ones((1, 3)), row, np.array([N])).catalog
    changed = [*before.promises[:-1], fs.Promise({"category": "toys"}, at_least=6)]
    after = resolve_promises(grown, changed, 4, 25, 8, before=before)
    assert after.names == [*before.names, "provider=epic"]  # no item of it is new
    assert after.terms.floors.tolist() == [*before.terms.floors[:-1], 6, 2]
    assert (after.atoms.atom_of[:N] == before.atoms.atom_of).all()
    assert after.terms.n_atoms == before.terms.n_atoms + 1
    newer = upsert_items(grown, None, {"new": [True]}, np.array([N])).catalog
    last = resolve_promises(newer, after.promises, 4, 25, 8, before=after)
    assert last.names == [*after.names, "provider=epic, new=True"]


def test_promises_that_are_not_given_again_are_withdrawn() -> None:
    catalog = make_catalog()
    series = fs.each(catalog, "provider", at_least=2)
    before = resolve_promises(catalog, [fs.Promise({"new": True}, 9, 50), *series, TOYS], 4, 25, 8)
    new = fs.Promise({"tags": "eco"}, at_least=3)
    after = resolve_promises(catalog, [new, *series[1:]], 4, 25, 8, before=before)
    assert after.names == [*before.names, "tags=eco"]
    assert after.terms.floors.tolist() == [0, 2, 2, 2, 2, 0, 3]  # the series stays whole
    assert after.terms.caps is None
    again = resolve_promises(catalog, [TOYS, new, *series], 4, 25, 8, before=after)
    assert again.terms.floors.tolist() == [0, 2, 2, 2, 2, 5, 3]


TOYS = fs.Promise({"category": "toys"}, at_least=5)


@pytest.mark.parametrize(
    ("promises", "message"),
    [
        (TOYS, "must be a list"),
        ([], "are empty"),
        (["toys"], "must be fairsync.Promise"),
        ([[TOYS]], "with a star"),
        ([fs.Promise({"category": "toy"}, at_least=5)], "Did you mean 'toys'"),
        ([fs.Promise({"categori": "toys"}, at_least=5)], "Did you mean 'category'"),
        ([fs.Promise({"tags": ["sale", "gifts"]}, at_least=5)], "Did you mean 'gift'"),
        ([fs.Promise({"price": {"at_least": 99.0}}, at_least=5)], "no item meets"),
        ([fs.Promise({"new": True}, 5, name="a"), fs.Promise({"new": False}, 5, name="a")], "are called 'a'"),
        ([fs.Promise({"new": True}, at_least=50, at_most=0.3)], "at_least is 50 of 100 slots, more than at_most, 30"),
        ([fs.Promise({"new": True}, at_least=0.5, at_most=49)], "at_least is 50 of 100 slots, more than at_most, 49"),
        ([fs.Promise({"new": True}, at_least=5, name="every slot")], "a meaning of its own"),
        (
            [fs.Promise({"category": one}, at_most_per_list=1) for one in ("toys", "books", "games")],
            "room for 3 items under at_most_per_list, fewer than k = 4",
        ),
        (
            [fs.Promise({"category": "toys"}, at_most_per_list=1), fs.Promise({"new": True}, at_most_per_list=2)],
            "share items",
        ),
    ],
)
def test_promises_that_cannot_be_used(promises: Any, message: str) -> None:
    with pytest.raises(fs.InvalidInputError, match=message):
        resolve_promises(make_catalog(), promises, 4, 25, 8)


def test_caps_that_leave_too_few_items_outside_are_kept_by_a_plan_for_every_slot() -> None:
    catalog = make_catalog()
    caps = [fs.Promise({"new": True}, 0, 60), fs.Promise({"new": False}, 0, 60)]
    resolved = resolve_promises(catalog, caps, 4, 25, 8)
    assert resolved.names == ["new=True", "new=False", "every slot"]
    assert resolved.terms.floors.tolist() == [0, 0, 100]
    assert resolved.terms.certificate is not None
    assert resolved.terms.certificate.sum() == 100
    again = resolve_promises(catalog, [TOYS], 4, 25, 8, before=resolved)
    assert again.names == [*resolved.names, "category=toys"]
    with pytest.raises(fs.InfeasibleFloorsError, match="they leave too few items to fill all 100 slots") as caught:
        resolve_promises(catalog, [replace(cap, at_most=49) for cap in caps], 4, 25, 8)
    assert set(caught.value.conflict) == {"new=True", "new=False"}
    assert "every slot" not in caught.value.largest


def test_contradictions_are_named() -> None:
    catalog = make_catalog()
    contradiction = [fs.Promise({"new": True}, at_least=50, name="a"), fs.Promise({"new": True}, 0, 30, name="b")]
    with pytest.raises(fs.InfeasibleFloorsError, match=r"a \(at least 50\), b \(at most 30\)\. One change") as caught:
        resolve_promises(catalog, [TOYS, *contradiction], 4, 25, 8)
    assert caught.value.conflict == ("a", "b")
    assert caught.value.largest == {"a": 30}
    assert caught.value.smallest == {"b": 50}
    with pytest.raises(
        fs.InfeasibleFloorsError, match=r"cannot hold\. One change would suffice: .* at least 100"
    ) as one:
        resolve_promises(catalog, [TOYS, fs.Promise({"new": True}, at_least=101)], 4, 25, 8)
    assert (one.value.group, one.value.floor, one.value.largest_feasible) == ("new=True", 101, 100)
    limited = [fs.Promise({"new": True}, at_least=50, at_most_per_list=1), TOYS]
    with pytest.raises(
        fs.InfeasibleFloorsError, match=r"at least 25, or new=True at most 2 per list\. Or let floors give way"
    ):
        resolve_promises(catalog, limited, 4, 25, 8, may_give_way=True)


def test_caps_on_all_items_plan_every_slot() -> None:
    catalog = make_catalog()
    caps = [fs.Promise({"new": True}, at_most=60), fs.Promise({"new": False}, at_most=60)]
    before = resolve_promises(catalog, [TOYS, *caps], 4, 25, 8)
    assert before.names[-1] == "every slot"
    assert before.terms.certificate is not None
    assert before.terms.certificate.sum() == 100
    again = resolve_promises(catalog, [TOYS, *caps], 4, 25, 8, before=before)
    assert again.promises == before.promises
    looser = resolve_promises(catalog, [TOYS, caps[0]], 4, 25, 8, before=again)
    assert looser.terms.floors.tolist() == [5, 0, 0, 0]
    tighter = resolve_promises(catalog, [*looser.promises[:2], caps[1]], 4, 25, 8, before=looser)
    assert tighter.terms.floors.tolist() == [5, 0, 0, 100]
    with pytest.raises(fs.InfeasibleFloorsError, match="they leave too few items"):
        resolve_promises(catalog, [caps[0], fs.Promise({"new": False}, at_most=39)], 4, 25, 8)
    with pytest.raises(fs.InfeasibleFloorsError, match="all items at most 100"):
        resolve_promises(catalog, [fs.Promise({}, at_most=60)], 4, 25, 8)


def test_exclusions_make_promises_on_small_atoms_expected() -> None:
    labels = ["a"] * 20 + ["b"] * 3
    catalog = fs.Catalog(np.ones((23, 2)), {"group": labels, "new": [True, *[False] * 22]})
    promises = [
        fs.Promise({"group": "a"}, at_least=30),
        fs.Promise({"group": "b"}, at_least=10),
        fs.Promise({"new": True}, at_least=5, at_most=20),
    ]
    resolved = resolve_promises(catalog, promises, 4, 10, 8, max_exclude=2)
    terms = resolved.terms
    assert terms.certain is not None
    assert terms.certificate is not None
    assert terms.certain.tolist() == [True, True, False]  # the one new item may be excluded each time
    due = np.where(terms.certain, terms.floors, 0)
    assert is_certificate(terms, terms.certificate, due, terms.caps, 10)
    assert resolve_promises(catalog, promises, 4, 10, 8).terms.certain is None
    with pytest.raises(fs.InfeasibleFloorsError):
        resolve_promises(catalog, [*promises, fs.Promise({"new": True}, at_least=11)], 4, 10, 8, max_exclude=2)
    with pytest.raises(fs.InfeasibleFloorsError, match="it leaves too few items"):
        resolve_promises(catalog, [fs.Promise({"group": "a"}, at_most=0.2)], 4, 10, 8, max_exclude=2)
    with pytest.raises(fs.InvalidInputError, match="max_exclude"):
        resolve_promises(catalog, [fs.Promise({"group": "a"}, at_most=0.5)], 4, 10, 8, max_exclude=2)


def test_where_no_single_change_suffices_the_error_does_not_say_so() -> None:
    catalog = fs.Catalog(np.eye(24), {"provider": np.repeat([f"p{i}" for i in range(8)], 3).tolist()})
    with pytest.raises(
        fs.InfeasibleFloorsError, match=r"At least one change is needed here: .* Other promises"
    ) as caught:
        resolve_promises(catalog, fs.each(catalog, "provider", at_least=0.3), 4, 25, 8)
    assert "suffice" not in str(caught.value)
