"""Promises that overlap, through the retriever: every one is kept at the very edge of what is possible."""

import os
from typing import Any

import numpy as np
import pytest

import fairsync as fs
from fairsync.search import ExactIndex
from overlap_worlds import OverlapWorld, make_overlap_world

WORLDS = int(os.environ.get("FAIRSYNC_OVERLAP_WORLDS", "40"))
KINDS = ["floors", "caps", "limits", "caps and limits", "covered", "covered, limits"]


def make_retriever(world: OverlapWorld, **options: Any) -> fs.FairRetriever:
    """Return a retriever for the promises of a world: each promise has an attribute of its own."""
    terms = world.terms
    attributes: dict[str, Any] = {f"p{code}": members.tolist() for code, members in enumerate(world.members)}
    attributes["group"] = [0] * len(world.catalog)
    catalog = fs.Catalog(world.catalog.embeddings, attributes)
    promises = []
    for code, members in enumerate(world.members):
        if members.all() and terms.floors[code] == terms.horizon * terms.k:
            continue  # the retriever adds it by itself
        bounds: dict[str, Any] = {"at_least": int(terms.floors[code])}
        if terms.caps is not None and terms.caps[code] < 2**61:
            bounds["at_most"] = int(terms.caps[code])
        if terms.list_limits is not None and terms.list_limits[code] < terms.k:
            bounds["at_most_per_list"] = int(terms.list_limits[code])
        promises.append(fs.Promise({f"p{code}": True}, **bounds))
    return fs.FairRetriever(
        catalog, k=terms.k, horizon=terms.horizon, promises=promises, max_exclude=terms.max_exclude, **options
    )


def assert_kept(world: OverlapWorld, rows: Any) -> None:
    exposures, terms = world.recount(rows), world.terms
    assert (rows >= 0).all()
    assert all(len(set(row)) == terms.k for row in rows.tolist())
    assert (exposures >= terms.floors).all()
    assert terms.caps is None or (exposures <= terms.caps).all()
    if terms.list_limits is not None:
        assert all((world.recount(row) <= terms.list_limits).all() for row in rows)


def make_users(world: OverlapWorld, rng: np.random.Generator, horizons: int = 1) -> Any:
    """Return users who like some items much better than others, and change their minds half-way."""
    n, n_items = horizons * world.terms.horizon, len(world.catalog)
    users = rng.normal(size=(n, n_items))
    users[: n // 2] += 4 * rng.normal(size=n_items)
    users[n // 2 :] += 4 * rng.normal(size=n_items)
    return users


@pytest.mark.parametrize("kind", KINDS)
def test_every_promise_is_kept_in_every_horizon(kind: str) -> None:
    for seed in range(WORLDS // 3):
        rng = np.random.default_rng(seed)
        world = make_overlap_world(seed, caps="caps" in kind, limits="limits" in kind, covered="covered" in kind)
        retriever = make_retriever(world, batch_size=int(rng.choice([1, 4, 16, 64])))
        found = retriever.retrieve(make_users(world, rng, horizons=2))
        assert_kept(world, found.rows[: world.terms.horizon])
        assert_kept(world, found.rows[world.terms.horizon :])
        assert retriever.report().esp == 1.0


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_exclusions_break_nothing(kind: str) -> None:
    for seed in range(WORLDS // 6):
        rng = np.random.default_rng(seed)
        world = make_overlap_world(
            seed, caps="caps" in kind, limits="limits" in kind, covered="covered" in kind, max_exclude=1 + seed % 2
        )
        retriever = make_retriever(world, batch_size=int(rng.choice([1, 4, 16])))
        users, limit = make_users(world, rng), world.terms.max_exclude
        exclude = [rng.permutation(len(world.catalog))[:limit].tolist() for _ in users]
        found = retriever.retrieve(users, exclude)
        assert_kept(world, found.rows)
        assert not any(set(rows) & set(gone) for rows, gone in zip(found.rows.tolist(), exclude, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_requests_of_one_call_are_answered_as_if_they_came_one_by_one(kind: str) -> None:
    for seed in range(WORLDS // 10):
        world = make_overlap_world(seed, caps="caps" in kind, limits="limits" in kind, covered="covered" in kind)
        users = make_users(world, np.random.default_rng(seed))
        one, other = (make_retriever(world, batch_size=8) for _ in range(2))
        singles = [other.retrieve(user[None]).rows[0].tolist() for user in users]
        assert one.retrieve(users).rows.tolist() == singles


@pytest.mark.parametrize("kind", KINDS)
def test_conditions_and_long_exclusions_crash_nothing(kind: str) -> None:
    for seed in range(WORLDS // 6):
        rng = np.random.default_rng(seed)
        world = make_overlap_world(seed, caps="caps" in kind, limits="limits" in kind, covered="covered" in kind)
        retriever, n_items = make_retriever(world, batch_size=4), len(world.catalog)
        for user in make_users(world, rng):
            where: Any = {f"p{rng.integers(len(world.members))}": True} if rng.random() < 0.3 else None
            gone = rng.permutation(n_items)[: rng.integers(n_items + 1)].tolist() if rng.random() < 0.3 else []
            mask = np.ones(n_items, dtype=bool) if where is None else world.members[int(next(iter(where))[1:])].copy()
            mask[gone] = False
            found = retriever.retrieve(user[None], [gone], where)
            rows = found.rows[0][found.rows[0] >= 0]
            assert mask[rows].all()
            assert len(set(rows.tolist())) == len(rows) == min(world.terms.k, int(mask.sum()))
        retriever.report()


@pytest.mark.parametrize("kind", ["floors", "caps", "covered"])
def test_undeclared_exclusions_that_leave_what_promises_need_change_nothing(kind: str) -> None:
    """A request that can show the capacity of each atom, and k items outside all caps, is not limited."""
    excluding = 0
    for seed in range(WORLDS // 2):
        rng = np.random.default_rng(seed)
        world = make_overlap_world(seed, caps=kind == "caps", covered=kind == "covered")
        retriever = make_retriever(world, batch_size=int(rng.choice([1, 4, 16])))
        terms, users = retriever.terms, make_users(world, rng)
        assert terms.membership is not None
        assert isinstance(retriever.index, ExactIndex)
        atoms = retriever.index.catalog.group_of
        capped = np.zeros(len(terms.floors), dtype=bool) if terms.caps is None else terms.caps < 2**61
        is_capped = np.array([bool(capped[terms.membership.of_atom(a)].any()) for a in range(terms.n_atoms)])
        exclude = []
        for _ in users:
            kept = [
                row
                for atom, capacity in enumerate(terms.capacities.tolist())
                for row in rng.permutation(np.flatnonzero(atoms == atom))[:capacity].tolist()
                if terms.has_floor[atom]
            ]
            free = [row for row in rng.permutation(np.flatnonzero(~is_capped[atoms])).tolist() if row not in kept]
            kept += free[: max(0, terms.k - int((~is_capped[atoms[kept]]).sum()))]
            exclude.append(sorted(set(range(len(atoms))) - set(kept)))
            excluding += len(exclude[-1])
        found = retriever.retrieve(users, exclude=exclude)
        assert_kept(world, found.rows)
        assert retriever.limited_requests == 0
    assert excluding
