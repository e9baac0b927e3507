"""Atoms: items with the same promises, numbered by their first item, with codes that stay."""

import numpy as np
import numpy.typing as npt
import pytest

from fairsync.catalog.atoms import Atoms, Membership, distinct_lists


def lists_of(rows: list[npt.NDArray[np.int64]], n: int) -> list[tuple[int, ...]]:
    return [tuple(p for p, some in enumerate(rows) if i in some) for i in range(n)]


def random_rows(rng: np.random.Generator, promises: int, n: int) -> list[npt.NDArray[np.int64]]:
    return [np.flatnonzero(rng.random(n) < rng.uniform(0, 0.7)) for _ in range(promises)]


@pytest.mark.parametrize("seed", range(50))
def test_atoms_are_the_distinct_lists_of_promises(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, promises = int(rng.integers(1, 30)), int(rng.integers(0, 5))
    rows = random_rows(rng, promises, n)
    lists = lists_of(rows, n)
    distinct = list(dict.fromkeys(lists))
    atoms = Atoms.of(rows, n)
    assert [tuple(atoms.membership.of_atom(a).tolist()) for a in range(atoms.membership.n_atoms)] == distinct
    assert atoms.atom_of.tolist() == [distinct.index(one) for one in lists]
    # Other items, and more promises: atoms keep their codes.
    m, more = int(rng.integers(1, 30)), promises + int(rng.integers(0, 3))
    rows = random_rows(rng, more, m)
    lists = lists_of(rows, m)
    distinct = list(dict.fromkeys(distinct + lists))
    after = Atoms.of(rows, m, atoms)
    assert after.membership.n_promises == more
    assert [tuple(after.membership.of_atom(a).tolist()) for a in range(after.membership.n_atoms)] == distinct
    assert after.atom_of.tolist() == [distinct.index(one) for one in lists]


def test_no_items() -> None:
    first, number = distinct_lists(np.empty(0, dtype=np.int64), np.zeros(1, dtype=np.int64))
    assert (len(first), len(number)) == (0, 0)


@pytest.mark.parametrize("most", [3, 8, 9])
def test_prices_of_many_atoms_are_the_sums_of_those_of_their_promises(most: int) -> None:
    """Also beyond one block, and where few atoms have a third promise; with nine promises another way is taken."""
    rng = np.random.default_rng(most)
    lengths = np.where(
        rng.random(70_000) < 0.01, rng.integers(0, most + 1, size=70_000), rng.integers(1, 3, size=70_000)
    )
    lengths[0] = most
    members = Membership.of([rng.choice(50, size=length, replace=False).tolist() for length in lengths.tolist()], 50)
    prices = rng.normal(size=50)
    expected = [sum(prices[members.of_atom(atom)].tolist(), 0.0) for atom in range(members.n_atoms)]
    assert members.atom_prices(prices).tolist() == expected
