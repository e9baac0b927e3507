"""What is known of prices of atoms from the prices of promises."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairsync.catalog.atoms import Membership
from fairsync.catalog.price_sources import source_of


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32), n_promises=st.integers(1, 12), n_atoms=st.integers(1, 40), most=st.integers(0, 8))
def test_bounds_hold_for_every_atom(seed: int, n_promises: int, n_atoms: int, most: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, min(most, n_promises) + 1, n_atoms)
    membership = Membership.of([tuple(rng.choice(n_promises, size, replace=False)) for size in sizes], n_promises)
    before, now = (membership.atom_prices(rng.normal(size=n_promises) * 10.0 ** rng.integers(-9, 9)) for _ in range(2))
    old, new = source_of(before), source_of(now)
    assert old is not None
    assert new is not None
    assert new.bounds[0] <= now.min() <= now.max() <= new.bounds[1]
    change = new.change(old)
    assert change is not None
    assert np.abs(now - before).max() <= change * (1 + 1e-12) + 1e-12 * max(np.abs(now).max(), np.abs(before).max())


def test_bounds_of_disjoint_promises_are_the_range() -> None:
    prices = Membership.of([(0,), (1,), ()], 2).atom_prices(np.array([-3.0, -1.0]))
    source = source_of(prices)
    assert source is not None
    assert source.bounds == (-3.0, 0.0)


def test_masked_promises_have_no_finite_change() -> None:
    membership = Membership.of([(0,), (1,)], 2)
    masked, other = membership.atom_prices(np.array([0.0, np.inf])), membership.atom_prices(np.array([0.0, 1.0]))
    before, now = source_of(masked), source_of(other)
    assert before is not None
    assert now is not None
    assert before.bounds == (0.0, np.inf)
    assert now.change(before) == np.inf
    assert np.isnan(before.change(before) or 0.0)


def test_nothing_is_known_of_other_arrays() -> None:
    membership, prices = Membership.of([(0,), (0, 1)], 2), np.array([-1.0, -2.0])
    made = membership.atom_prices(prices)
    source = source_of(made)
    assert source is not None
    assert source_of(made.copy()) is None
    assert source_of(made[:1]) is None
    with pytest.raises(ValueError, match="read-only"):
        made[0] = 5.0
    prices[0] = 7.0  # the caller's own array
    assert source.bounds == (-3.0, -1.0)
    other = source_of(Membership.of([(0,), (0, 1)], 2).atom_prices(prices))
    assert other is not None
    assert other.change(source) is None, "of other atoms"


def test_a_source_is_kept_as_long_as_the_prices() -> None:
    membership = Membership.of([(0,)], 1)
    for number in range(1_000):
        prices = membership.atom_prices(np.array([float(number)]))
        source = source_of(prices)
        assert source is not None
        assert source.bounds == (number, number), "an array may have the address of one that is gone"
        if number % 100 == 0:
            gc.collect()
