"""An even plan: everything at a constant rate. Where it fits, nothing is missed, and no program has to be solved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairsync.policies.base import NO_CAP

if TYPE_CHECKING:
    from fairsync.plan.program import Program
    from fairsync.policies.base import Floats

_ROUNDING = 1 + 1e-9


def even_plan(program: Program) -> Floats | None:
    """Return (A, S) exposures that meet all demands at the same rate in every request; None if they do not fit.

    In every segment a selection has the largest rate that a demand on it needs, spread over its atoms in proportion to
    their capacities. If that fits, the least shortfall is 0. If not, it may be 0 all the same. A first segment that is
    spared is not used.

    Examples
    --------
    Three demands on ten requests with two slots. Selection 1 contains selection 0.

    >>> from fairsync.catalog.atoms import Membership
    >>> from fairsync.plan.program import Demands, Program
    >>> table, two = Membership.of([(0, 1), (1,)], 2), np.full(2, 2)
    >>> for floors in ([2, 4, 9], [2, 4, 29]):
    ...     demands = Demands.of([0, 0, 1], first=0, last=[0, 1, 1], at_least=floors)
    ...     even_plan(Program(table, two, 2, np.array([4, 6]), demands)) is not None
    True
    False
    """
    demands, floors, membership = program.demands, program.floors, program.membership
    requests = program.requests.astype(np.float64)
    if program.spares_first:
        requests[0] = 0.0
    until = np.concatenate([[0.0], np.cumsum(requests)])
    within = until[demands.last[floors] + 1] - until[demands.first[floors]]
    if (within <= 0).any():
        return None
    rate = np.zeros((membership.n_promises, len(requests)))
    lengths = demands.last[floors] - demands.first[floors] + 1
    row = np.repeat(np.arange(len(floors)), lengths)
    segment = demands.first[floors][row] + np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    np.maximum.at(rate, (demands.selection[floors][row], segment), (demands.at_least[floors] / within)[row])
    rate[:, requests <= 0] = 0.0
    if (rate.sum(axis=0) > program.k * _ROUNDING).any():
        return None
    held = membership.sums(program.capacities.astype(np.float64))
    if (rate[held <= 0] > 0).any():
        return None
    load = membership.matrix.T @ (rate / np.maximum(held, 1.0)[:, None])
    if (load > _ROUNDING).any():
        return None
    plan: Floats = load * program.capacities[:, None] * requests
    caps = np.flatnonzero(demands.at_most < NO_CAP)
    if not len(caps) and program.list_limits is None:
        return plan
    exposures = membership.matrix @ plan
    if program.list_limits is not None and (exposures > program.list_limits[:, None] * requests * _ROUNDING).any():
        return None
    so_far = np.concatenate([np.zeros((membership.n_promises, 1)), np.cumsum(exposures, axis=1)], axis=1)
    at = demands.selection[caps]
    had = so_far[at, demands.last[caps] + 1] - so_far[at, demands.first[caps]]
    return plan if (had <= demands.at_most[caps] * _ROUNDING).all() else None
