"""The atoms of lists, beside counts over all atoms."""

import numpy as np
import pytest

from fairsync.catalog.atoms import Membership
from fairsync.loop.certificate_state import CertificateState
from fairsync.promises.certificate import Certified
from fairsync.promises.shown import Shown


@pytest.mark.parametrize("seed", range(20))
def test_it_says_what_counts_over_all_atoms_say(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n_atoms, n_promises = int(rng.integers(1, 40)), int(rng.integers(1, 6))
    members = Membership.of([np.flatnonzero(rng.random(n_promises) < 0.4).tolist() for _ in range(n_atoms)], n_promises)
    atoms, plan = rng.integers(n_atoms, size=int(rng.integers(0, 30))), rng.integers(4, size=n_atoms)
    counts, shown, before = np.bincount(atoms, minlength=n_atoms), Shown.of_atoms(atoms), plan.copy()
    assert shown.up_to(n_atoms).tolist() == Shown.in_all(counts).up_to(n_atoms).tolist() == counts.tolist()
    assert shown.exposures(members).tolist() == members.exposures(counts).tolist()
    assert shown.taken_from(plan).tolist() == np.maximum(plan - counts, 0).tolist()
    assert plan.tolist() == before.tolist()


@pytest.mark.parametrize("n_atoms", [3, 500])
def test_a_certificate_counts_every_exposure_whenever_it_is_asked(n_atoms: int) -> None:
    rng, zero = np.random.default_rng(0), np.zeros(n_atoms, dtype=np.int64)
    state, expected, first = CertificateState(zero, zero, zero, 9), zero.copy(), None
    for _ in range(30):
        atoms = rng.integers(n_atoms, size=7)
        state = state.after(Certified(zero, Shown.of_atoms(atoms)))
        expected = expected + np.bincount(atoms, minlength=n_atoms)
        first = first or state
        assert state.exposures.tolist() == expected.tolist()
        assert state.recent is None or len(state.recent) < n_atoms
    assert first is not None
    assert first.exposures.sum() == 7  # a state never changes
