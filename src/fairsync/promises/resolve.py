"""Stand-in until the real module is merged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairsync.catalog import Catalog
from fairsync.catalog.atoms import Atoms
from fairsync.policies.base import NO_CAP, Terms
from fairsync.promises.promise import Promise


@dataclass(frozen=True)
class ResolvedPromises:
    """Promises, atoms and terms."""

    promises: tuple[Promise, ...]
    atoms: Atoms
    terms: Terms

    @property
    def names(self) -> list[str]:
        """Names of the promises."""
        return [promise.name for promise in self.promises]


def resolve_promises(
    catalog: Catalog,
    promises: Sequence[Promise],
    k: int,
    horizon: int,
    batch_size: int,
    *,
    max_exclude: int = 0,
    before: ResolvedPromises | None = None,
) -> ResolvedPromises:
    """Resolve promises against a catalog."""
    rows = []
    for promise in promises:
        chosen = catalog.select(promise.where)
        rows.append(np.arange(len(catalog)) if chosen is None else chosen.rows)
    atoms = Atoms.of(rows, len(catalog))
    caps = [promise.cap(horizon * k) for promise in promises]
    limits = [promise.at_most_per_list for promise in promises]
    terms = Terms(
        np.array([promise.floor(horizon * k) for promise in promises], dtype=np.int64),
        np.minimum(atoms.sizes, k),
        k,
        horizon,
        batch_size,
        caps=np.array([NO_CAP if cap is None else cap for cap in caps]) if any(c is not None for c in caps) else None,
        membership=atoms.membership,
        list_limits=np.array([k if one is None else min(one, k) for one in limits])
        if any(one is not None for one in limits)
        else None,
    )
    return ResolvedPromises(tuple(promises), atoms, terms)
