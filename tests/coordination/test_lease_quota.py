"""The quota of leases that are granted side by side: whatever they return, caps and certificate hold."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from effort import effort
from fairsync.catalog.atoms import Membership
from fairsync.coordination.lease_quota import UNLIMITED, LeaseQuota, requests_needed, share_out
from fairsync.policies import Terms
from fairsync.policies.base import NO_CAP
from fairsync.promises.certificate import find_certificate, is_certificate


@effort(150, 0.01)
@given(st.integers(0, 10**6))
def test_leases_of_a_budget_use_no_more_than_caps_have_left_beside_the_certificate(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, atoms, k, horizon = int(rng.integers(1, 5)), int(rng.integers(1, 7)), int(rng.integers(1, 6)), 200
    members = Membership.of([tuple(np.flatnonzero(rng.random(n) < 0.5).tolist()) for _ in range(atoms)], n)
    caps = np.where(rng.random(n) < 0.7, rng.integers(0, 400, n), NO_CAP)
    limits = np.where(rng.random(n) < 0.3, rng.integers(1, k + 1, n), k)
    terms = Terms(
        rng.integers(0, 60, n), rng.integers(0, k + 1, atoms), k, horizon, int(rng.integers(1, 9)),
        caps=caps, membership=members, list_limits=limits,
    )  # fmt: skip
    open_ = {7: int(rng.integers(1, 9)), 8: int(rng.integers(1, 9))}
    allowances = {number: rng.integers(0, requests * k + 1, n) for number, requests in open_.items()}
    settled = int(rng.integers(0, 100))
    granted = settled + sum(open_.values())
    room = np.maximum(caps - sum(allowances.values()), 0)
    plan = find_certificate(terms, terms.floors, room, horizon - granted)
    if plan is None:
        return
    requests = int(rng.integers(1, 9))
    shared = share_out(5, terms, plan, room, granted, allowances, (9, requests))
    if shared is None:
        assert not is_certificate(terms, plan, np.zeros(n, dtype=np.int64), None, horizon - granted - requests)
        return
    quota, given_room = shared
    assert quota.most <= horizon - requests_needed(terms, plan)
    assert is_certificate(terms, plan, terms.floors, room, horizon - quota.most)
    assert given_room is not None or not (caps < NO_CAP).any()
    # All leases that the quota allows use all that they may, and so does the one that was granted with it.
    most = min(quota.most, horizon) - granted - requests
    used = np.zeros(n, dtype=np.int64)
    used[quota.capped] = quota.reserved(9, requests, terms)[quota.capped] + most * quota.rates
    assert (used + terms.exposures(plan) <= room)[caps < NO_CAP].all()
    loaded = LeaseQuota.load(quota.dump())
    for number, count in {**open_, 9: requests, 10: 3}.items():
        assert loaded.reserved(number, count, terms).tolist() == quota.reserved(number, count, terms).tolist()
        if number in allowances:
            assert (quota.reserved(number, count, terms) == allowances[number])[quota.capped].all()
    closed = quota.closed(6, {**open_, 10: 3}, terms)
    assert closed.most == 0
    assert closed.all_reserved({**open_, 10: 3}, terms).tolist() == quota.all_reserved({**open_, 10: 3}, terms).tolist()


@pytest.mark.parametrize(
    ("plan", "limits", "needed"),
    [([0, 0], None, 0), ([4, 1], None, 3), ([1, 2], [1, 1], 3), ([0, 1], [0, 0], UNLIMITED)],
)
def test_the_fewest_requests_for_a_plan(plan: list[int], limits: list[int] | None, needed: int) -> None:
    terms = Terms(
        np.zeros(2, dtype=np.int64), np.array([2, 1]), 2, 9, 1, membership=Membership.of([(0,), (0, 1)], 2),
        list_limits=None if limits is None else np.array(limits),
    )  # fmt: skip
    assert requests_needed(terms, np.array(plan)) == needed


def test_what_had_no_cap_when_a_lease_was_granted_may_be_used_up() -> None:
    terms = Terms(np.zeros(3, dtype=np.int64), np.array([2, 1, 1]), 2, 9, 1)
    quota = LeaseQuota(1, 50, np.array([0]), np.array([1]))
    assert quota.reserved(4, 5, terms).tolist() == [5, 10, 10]
