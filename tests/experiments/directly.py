"""A method on a base model by the shortest way there is: no store, no tuning, no remembered scores."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairsync import FairRetriever, hindsight
from fairsync.experiments.base_models import BaseModel
from fairsync.policies import Policy


class Direct(NamedTuple):
    """What came of it, in the units of the tables."""

    esp: float
    missing: int
    recall: float
    relevance: float
    cost_ratio: float


def run_directly(
    base: BaseModel, k: int, floor: int, policy: str | Policy, batch_size: int, order: NDArray[np.intp] | None = None
) -> Direct:
    """Return percentages, missing exposures, the sum of relevance, and cost in multiples of hindsight."""
    order = np.arange(len(base.test.users)) if order is None else order
    users = base.test.users[order]
    found = FairRetriever(
        base.catalog, k=k, floors=floor, horizon=len(users), policy=policy, batch_size=batch_size
    ).retrieve(users)
    exposures = np.array([(found.groups == label).sum() for label in base.catalog.labels])
    shares = []
    for at, ids in zip(order, found.ids, strict=True):
        wanted = set(base.catalog.ids[base.test.targets[at]])
        shares.append(len(wanted & set(ids)) / len(wanted))
    best = hindsight(base.catalog, base.test.users, k=k, floors=floor)
    cost = best.unconstrained_relevance - found.relevance.sum()
    return Direct(
        100 * float((exposures >= floor).mean()),
        int(np.maximum(floor - exposures, 0).sum()),
        100 * float(np.mean(shares)),
        float(found.relevance.sum()),
        float(cost / best.cost),
    )
