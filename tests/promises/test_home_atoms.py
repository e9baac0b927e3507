"""Homes of small atoms: promises are certain although requests may exclude all items of each of their atoms."""

import os
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import fairsync as fs
from fairsync.catalog.atoms import Atoms
from fairsync.policies.base import NO_CAP, Terms
from fairsync.promises.home_atoms import homes_by_promises, under_homes, with_homes, with_homes_before
from fairsync.search import IvfIndex

WORLDS = int(os.environ.get("FAIRSYNC_OVERLAP_WORLDS", "40"))
Members = npt.NDArray[np.bool_]


def terms_of(members: Members, floors: list[int], max_exclude: int, **bounds: Any) -> tuple[Atoms, Terms]:
    atoms = Atoms.of([np.flatnonzero(row) for row in members], members.shape[1])
    capacities = np.minimum(np.maximum(atoms.sizes - max_exclude, 0), 3)
    terms = Terms(
        np.array(floors), capacities, 3, 10, 1, max_exclude=max_exclude, membership=atoms.membership, **bounds
    )
    return with_homes(atoms, terms)


def crossed(n_rows: int, n_columns: int, each: int) -> Members:
    """Return promises to the rows and the columns of a table whose cells have some items each."""
    cell = np.repeat(np.arange(n_rows * n_columns), each)
    rows = [cell // n_columns == row for row in range(n_rows)]
    return np.array([*rows, *(cell % n_columns == column for column in range(n_columns))])


def test_a_promise_gets_a_home_for_atoms_that_requests_may_exclude() -> None:
    members = crossed(2, 3, each=2)  # 6 atoms of 2 items
    atoms, terms = terms_of(members, [10, 0, 0, 0, 0], max_exclude=3)
    assert terms.home is not None
    home = int(terms.home[atoms.atom_of[0]])
    assert atoms.sizes[home] == 0
    assert atoms.membership.of_atom(home).tolist() == [0]
    assert terms.capacities[home] == 3  # 6 items, of which 3 may be excluded
    assert (terms.home[atoms.atom_of[6:]] == atoms.atom_of[6:]).all()  # the other row has no floor


def test_no_homes_without_exclusions_or_where_atoms_suffice() -> None:
    members = crossed(2, 3, each=2)
    for floors, max_exclude in (([10, 0, 0, 0, 0], 0), ([10, 0, 0, 0, 0], 1), ([0] * 5, 3)):
        atoms, terms = terms_of(members, floors, max_exclude)
        assert terms.home is None
        assert atoms.membership is terms.membership


def test_every_atom_has_one_home_and_serves_one_promise() -> None:
    members = crossed(4, 4, each=3)
    atoms, terms = terms_of(members, [5] * 8, max_exclude=4)
    assert terms.home is not None
    assert (terms.home[terms.home] == terms.home).all()
    promised = [set(atoms.membership.of_atom(code).tolist()) for code in range(atoms.membership.n_atoms)]
    for code, home in enumerate(terms.home.tolist()):
        assert promised[home] <= promised[code]
        assert home == code or terms.capacities[code] == 0
    served = np.bincount(terms.home, atoms.sizes)
    assert (terms.capacities == np.clip(served - 4, 0, 3)).all()


@pytest.mark.parametrize("seed", range(5))
def test_homes_do_not_depend_on_the_order_of_the_items(seed: int) -> None:
    members = crossed(4, 4, each=3)
    other = members[:, np.random.default_rng(seed).permutation(members.shape[1])]
    _, terms = terms_of(members, [5] * 8, max_exclude=4)
    atoms, there = terms_of(other, [5] * 8, max_exclude=4)
    assert sorted(homes_by_promises(terms)) == sorted(homes_by_promises(there))
    again = under_homes(atoms, there, homes_by_promises(terms))
    assert again.home is not None
    assert there.home is not None
    assert (again.home == there.home).all()
    assert (again.capacities == there.capacities).all()


@pytest.mark.parametrize("bound", ["caps", "list_limits"])
def test_the_atoms_of_a_home_belong_to_the_same_promises_that_limit_them(bound: str) -> None:
    members = crossed(1, 3, each=4)  # one row of three atoms; the second is limited
    none = NO_CAP if bound == "caps" else 3
    atoms, terms = terms_of(members, [9, 0, 0, 0], 5, **{bound: np.array([none, none, 2, none])})
    assert terms.home is not None
    first, second, third = (int(terms.home[atoms.atom_of[item]]) for item in (0, 4, 8))
    assert first == third != second
    assert second == atoms.atom_of[4]
    # If all of them are limited alike, so is their home.
    both = np.concatenate([members, np.ones((1, 12), dtype=bool)])
    atoms, terms = terms_of(both, [9, 0, 0, 0, 0], 5, **{bound: np.array([none, none, none, none, 2])})
    assert terms.home is not None
    assert atoms.membership.of_atom(int(terms.home[atoms.atom_of[0]])).tolist() == [0, 4]


def test_atoms_of_different_caps_share_a_home_that_counts_for_all_of_them() -> None:
    """Where atoms of the same caps are too few: "no provider more than a third", and every item has a provider."""
    new = np.arange(30) % 10 < 2  # two items of each provider
    members = np.concatenate([crossed(1, 3, each=10), [new]])  # all items, three providers, new ones
    caps = np.array([NO_CAP, 20, 20, 20, NO_CAP])
    atoms, terms = terms_of(members, [30, 0, 0, 0, 9], 3, caps=caps)
    assert terms.home is not None
    (home,) = set(terms.home[atoms.atom_of[new]].tolist())
    assert atoms.membership.of_atom(home).tolist() == [0, 1, 2, 3, 4]
    assert terms.capacities[home] == 3  # 6 items, of which 3 may be excluded
    # A floor of a provider would be counted for new items of others.
    atoms, terms = terms_of(members, [30, 1, 0, 0, 9], 3, caps=caps)
    assert terms.home is not None
    first, second, third = (int(terms.home[atoms.atom_of[item]]) for item in (0, 10, 20))
    assert first != second == third
    assert atoms.membership.of_atom(second).tolist() == [0, 2, 3, 4]


def make_world(seed: int, *, caps: int) -> tuple[fs.Catalog, list[fs.Promise], dict[str, Any], Members]:
    """Return promises to rows and columns of small cells, each with the largest floor that is certain, one by one.

    One cap is on items of some cells. Several are on all items, also those without a floor.
    """
    rng = np.random.default_rng(seed)
    rows, columns, each = rng.integers(1, 4), rng.integers(2, 4), int(rng.integers(1, 4))
    members = crossed(int(rows), int(columns), each)
    members = members[:, rng.random(members.shape[1]) < 0.9]
    members = members[members.any(axis=1)]
    more = int(rng.integers(8, 12)) if caps < 2 else 9 * caps  # items without a promise fill the lists
    members = np.pad(members, ((0, 0), (0, more)))
    n_floors, n = len(members), members.shape[1]
    if caps == 1:
        members = np.concatenate([members, [np.arange(n) < rng.integers(1, n - more + 1)]])
    elif caps:
        members = np.concatenate([members, rng.permutation(np.arange(n) % caps) == np.arange(caps)[:, None]])
    attributes = {f"p{code}": row.tolist() for code, row in enumerate(members)}
    catalog = fs.Catalog(np.eye(n), {"group": [0] * n, **attributes})
    k, horizon = int(rng.integers(1, 5)), int(rng.integers(2, 16))
    settings: dict[str, Any] = {"k": k, "horizon": horizon, "max_exclude": int(rng.integers(each, each + 3))}
    floors = np.zeros(n_floors, dtype=int)
    most = [int(rng.integers(max(horizon, -(-horizon * k // caps)), horizon * k + 1)) for _ in range(caps)]

    def promises() -> list[fs.Promise]:
        made = [fs.Promise({f"p{code}": True}, at_least=int(floor)) for code, floor in enumerate(floors)]
        return [*made, *(fs.Promise({f"p{n_floors + at}": True}, at_most=cap) for at, cap in enumerate(most))]

    def is_certain() -> bool:
        try:
            terms = fs.FairRetriever(catalog, promises=promises(), **settings).terms
        except fs.FairSyncError:
            return False
        return terms.certain is None

    for code in rng.permutation(n_floors)[: rng.integers(1, n_floors + 1)]:
        low, high = 0, horizon * k + 1
        while high - low > 1:
            floors[code] = (low + high) // 2
            low, high = (floors[code], high) if is_certain() else (low, floors[code])
        floors[code] = low
    return catalog, promises(), settings, members


@pytest.mark.parametrize("caps", [0, 1, 3])
@pytest.mark.parametrize("index", ["exact", "ivf"])
def test_floors_that_are_certain_hold_whatever_is_excluded(caps: int, index: str) -> None:
    with_home = 0
    for seed in range(WORLDS if index == "exact" else WORLDS // 4):
        catalog, promises, settings, members = make_world(seed, caps=caps)
        rng = np.random.default_rng(seed)
        made: Any = index if index == "exact" else (lambda one: IvfIndex(one, exact_below=0))
        retriever = fs.FairRetriever(
            catalog, promises=promises, batch_size=int(rng.choice([1, 4])), index=made, **settings
        )
        with_home += retriever.terms.home is not None
        floors = np.array([promise.at_least or 0 for promise in promises])
        exposures, k = np.zeros(len(promises), dtype=int), settings["k"]
        for _ in range(settings["horizon"]):
            # All items of the promise that misses most, or items at random.
            wanted = members[(floors - exposures).argmax()] if rng.random() < 0.8 else rng.random(len(catalog)) < 0.5
            users = rng.normal(size=len(catalog)) - 5 * wanted
            mine = rng.permutation(np.flatnonzero(wanted))[: settings["max_exclude"]]
            found = retriever.retrieve(users[None], [mine.tolist()])
            assert (found.rows >= 0).all()
            assert not np.isin(found.rows, mine).any()
            assert len(set(found.rows[0].tolist())) == k
            exposures += members[:, found.rows[0]].sum(axis=1)
        assert (exposures >= floors).all(), seed
        pairs = zip(promises, exposures.tolist(), strict=True)
        assert all(promise.at_most is None or got <= promise.at_most for promise, got in pairs)
        assert retriever.report().limited_requests == 0
    assert with_home > WORLDS // 20


@pytest.mark.parametrize("seed", [24, 101, 134])
def test_a_list_that_serves_a_home_gives_what_a_forecast_asks_of_it(seed: int) -> None:
    # After the first request with a condition, a forecast asks items of some requests that prices give them anyway.
    rng = np.random.default_rng(seed)
    rows = [f"r{item // 6}" for item in range(12)] + ["none"] * 18
    columns = [f"c{item // 2 % 3}" for item in range(12)] + ["none"] * 18
    floors = {"r0": 9, "r1": 2}, {"c0": 6, "c1": 2, "c2": 2}
    promises = [
        fs.Promise({name: label}, at_least=floor)
        for name, some in zip(("row", "column"), floors, strict=True)
        for label, floor in some.items()
    ]
    catalog = fs.Catalog(np.eye(30), {"row": rows, "column": columns})
    retriever = fs.FairRetriever(catalog, k=5, horizon=14, promises=promises, batch_size=1, max_exclude=3)
    for _ in range(14):
        where = {"row": ["none", "r0"]} if rng.random() < 0.2 else None
        retriever.retrieve(rng.normal(size=(1, 30)), [rng.choice(12, 3, replace=False).tolist()], [where])
    report = retriever.report()
    assert report.limited_requests > 0
    assert report.promises[0].kept
    assert report.forced == 0


def test_atoms_leave_a_home_that_no_longer_stands_for_them() -> None:
    # Promise 0 is to all six items, 1 to the first three, 2 to the last three; the home of all is in every promise.
    sets = [np.arange(6), np.arange(3), np.arange(3, 6), np.array([], dtype=np.int64)]
    atoms, codes = Atoms.of(sets, 6).extended([[0, 1, 2]])
    none, home = np.zeros(4, dtype=np.int64), np.full(3, codes[0])
    cap = np.array([NO_CAP, 9, 9, NO_CAP])

    def homes(floors: list[int], caps: list[int], list_limits: list[int] | None = None) -> list[int]:
        before = Terms(
            np.array([4, 0, 0, 0]), none, k=2, horizon=9, batch_size=1, max_exclude=3, caps=cap,
            membership=atoms.membership, home=home,
        )  # fmt: skip
        limits = None if list_limits is None else np.array(list_limits)
        now = replace(before, floors=np.array(floors), caps=np.array(caps), list_limits=limits, home=None)
        found = with_homes_before(atoms, now, before)
        assert found is not None
        assert found.home is not None
        return [int(one) for one in found.home]

    assert homes([4, 0, 0, 0], [NO_CAP, 9, 9, NO_CAP]) == [2, 2, 2]
    assert homes([4, 0, 0, 0], [NO_CAP, 9, NO_CAP, NO_CAP]) == [2, 2, 2]  # counted for less than the plan has
    assert homes([4, 0, 1, 0], [NO_CAP, 9, 9, NO_CAP]) == [0, 2, 2]  # the first atom would count for nothing there
    assert homes([4, 1, 1, 0], [NO_CAP, 9, 9, NO_CAP]) == [0, 1, 2]
    assert homes([4, 0, 0, 0], [NO_CAP, 9, 9, NO_CAP], [2, 1, 2, 2]) == [2, 1, 2]  # the home is limited, the item not


def test_an_item_more_is_not_refused_for_homes_that_fit_less_well() -> None:
    # Every slot is planned, because every item has a provider with a cap. With an item more other homes would be
    # chosen, under which lists might not be filled.
    items = [(1, 0), (1, 1), (1, 0), (0, 0), (1, 0), (0, 1), (0, 0), (0, 1), (1, 1)]
    attributes = {"provider": [one for one, _ in items], "column": [one for _, one in items]}
    catalog = fs.Catalog(np.eye(10)[:9], attributes)
    promises = [
        fs.Promise({"provider": 0}, at_most=6),
        fs.Promise({"provider": 1}, at_most=4),
        fs.Promise({"column": 0}, at_least=2),
    ]
    retriever = fs.FairRetriever(catalog, k=2, horizon=4, promises=promises, max_exclude=2)
    assert all(one.certain for one in retriever.report().promises)
    retriever.upsert(np.eye(10)[9:], {"provider": [1], "column": [0]}, [9])
    assert all(one.certain for one in retriever.report().promises)
