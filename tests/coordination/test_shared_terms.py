"""The promise that coordinators share, as it is saved, and in what two of them differ."""

import numpy as np
import pytest

from fairsync.catalog import Catalog
from fairsync.catalog.groups import Groups
from fairsync.coordination.shared_terms import TERMS, SharedTerms
from fairsync.errors import InvalidInputError
from fairsync.ledger import MemoryLedger
from fairsync.promises.floors import make_terms

THREE = Catalog(np.eye(6), ["a", "a", "a", "b", "b", "c"])


def shared(*, number: int = 1, auto_restart: bool = True, catalog: Catalog = THREE, k: int = 2) -> SharedTerms:
    terms = make_terms(catalog, k, {"a": 3}, 10, 4, auto_restart=auto_restart)
    return SharedTerms.of(number, catalog.groups, terms, keeps_floors=True)


def test_it_is_saved_and_loaded() -> None:
    ledger = MemoryLedger(3)
    assert SharedTerms.saved_in(ledger) is None
    ledger.save(TERMS, shared(number=5).dump())
    loaded = SharedTerms.saved_in(ledger)
    assert loaded is not None
    assert (loaded.number, loaded.groups.labels, loaded.floors) == (5, ["a", "b", "c"], (3, 0, 0))
    terms = loaded.terms(4)
    expected = make_terms(THREE, 2, {"a": 3}, 10, 4)
    assert (terms.floors.tolist(), terms.capacities.tolist()) == (
        expected.floors.tolist(),
        expected.capacities.tolist(),
    )
    assert (terms.k, terms.horizon, terms.batch_size, terms.auto_restart) == (2, 10, 4, True)
    assert loaded.difference(shared()) == ""


def test_items_may_come_and_go_while_requests_can_hold_as_many() -> None:
    more = Catalog(np.eye(8), ["a"] * 5 + ["b", "b", "c"])
    fewer = Catalog(np.eye(6), ["a", "a", "a", "a", "b", "c"])
    assert shared(catalog=more).difference(shared()) == ""
    assert shared(catalog=fewer).difference(shared()) == "sizes"


def test_if_horizons_end_by_the_clock_the_leader_sets_the_targets() -> None:
    mine = shared(auto_restart=False)
    grown = Groups(["a", "b", "c", "new"], np.array([3, 2, 1, 9]))
    terms = make_terms(grown, 2, {"new": 9}, 50, 4, auto_restart=False)
    assert mine.difference(SharedTerms.of(2, grown, terms, keeps_floors=True)) == ""
    assert mine.difference(shared()) == "auto_restart (False here, True there)"
    other = Groups(["b", "a", "c"], np.array([3, 2, 1]))
    theirs = SharedTerms.of(2, other, make_terms(other, 2, 0, 10, 4, auto_restart=False), keeps_floors=True)
    assert mine.difference(theirs) == "labels"


def test_the_refusal_names_the_difference_and_the_ledger() -> None:
    with pytest.raises(
        InvalidInputError, match=r"postgresql://db/shop differs in .*k \(1 here, 2 there\): .*take over"
    ):
        shared(k=1).check_agrees(shared(), "postgresql://db/shop")


def test_coordinators_must_agree_in_what_a_request_may_exclude() -> None:
    def excluding(e: int) -> SharedTerms:
        return SharedTerms.of(1, THREE.groups, make_terms(THREE, 2, {"a": 3}, 10, 4, max_exclude=e), keeps_floors=True)

    assert excluding(1).difference(excluding(0)) == "max_exclude (1 here, 0 there)"
    loaded = SharedTerms.load(excluding(2).dump())
    assert loaded.difference(excluding(2)) == ""
    assert (loaded.terms(4).max_exclude, loaded.terms(4).capacities.tolist()) == (2, [1, 0, 0])
