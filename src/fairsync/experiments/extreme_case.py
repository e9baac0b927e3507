"""The paper's extreme case: no user likes the second group, and it still gets its floor."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.catalog import Catalog
from fairsync.experiments.compared_methods import GRIDS, QUICK_GRIDS
from fairsync.experiments.exhibit import Exhibit, ExhibitTable
from fairsync.experiments.experiment import Experiment, Lab, WorkStep
from fairsync.policies import FairSync, make_policy
from fairsync.retriever import FairRetriever

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.policies import Policy

USERS, K, FLOOR, ITEMS = 10_000, 5, 2_000, 5
_METHODS = ("none", "fairsync", "guaranteed")

_WORDS = (
    "A toy of the paper's, the same on all data: two groups of {items} items, {users:,} users, K = {k}, a floor of"
    " {floor:,} for both groups. Every user is near the items of the first group (distance 0 to 0.4) and far from"
    " those of the second (0.4 to 1.0); recall is the share of the five nearest items among the candidates. The"
    " floors cannot be met with more than 96 %: the second group must have {floor:,} of {slots:,} places. The"
    " learning rate of FairSync was tuned on other users of the same kind (most floors, then recall), as the paper's"
    " will have been. In the paper FairSync has recall 0.96, ESP 100 %, and 48,000 and 2,000 exposures."
)


def users_of(seed: int) -> NDArray[np.float64]:
    """Return user vectors that hold minus the distance to each item. Items are unit vectors."""
    rng = np.random.default_rng(seed)
    near, far = rng.uniform(0, 0.4, (USERS, ITEMS)), rng.uniform(0.4, 1.0, (USERS, ITEMS))
    return -np.concatenate([near, far], axis=1)


def try_policy(policy: Policy, users: NDArray[np.float64], batch_size: int) -> dict[str, Any]:
    """Return recall, ESP and the exposures of both groups.

    Examples
    --------
    >>> found = try_policy(make_policy("guaranteed"), users_of(seed=0), batch_size=16)
    >>> found["recall"], found["esp"], found["exposures"]
    (0.96, 1.0, [48000, 2000])
    """
    catalog = Catalog(np.eye(2 * ITEMS), ["liked"] * ITEMS + ["disliked"] * ITEMS)
    retriever = FairRetriever(catalog, k=K, floors=FLOOR, horizon=len(users), policy=policy, batch_size=batch_size)
    found = retriever.retrieve(users)
    report = retriever.report()
    exposures = [report.exposures["liked"], report.exposures["disliked"]]
    return {"recall": float((found.ids < ITEMS).mean()), "esp": report.esp, "exposures": exposures}


def _tune(grid: tuple[float, ...], batch_size: int) -> float:
    users = users_of(seed=1)

    def worth(rate: float) -> tuple[float, float]:
        found = try_policy(FairSync(rate), users, batch_size)
        return found["esp"], found["recall"]

    return max(grid, key=worth)


def _found(lab: Lab, method: str) -> dict[str, Any]:
    """Return the result of a method, from the store if possible."""
    batch_size = lab.setting.batch_size
    grid = (QUICK_GRIDS if lab.setting.quick else GRIDS)["fairsync"]

    def compute() -> dict[str, Any]:
        rate = _tune(grid, batch_size) if method == "fairsync" else None
        policy = make_policy(method) if rate is None else FairSync(rate)
        return {"learning rate": rate, **try_policy(policy, users_of(seed=0), batch_size)}

    key = {"method": method, "batch_size": batch_size, "grid": list(grid)}
    found: dict[str, Any] = lab.cell("extreme-case", key, compute)
    return found


def _steps(lab: Lab) -> list[WorkStep]:
    return [WorkStep(f"{method} in the extreme case", partial(_found, lab, method)) for method in _METHODS]


def _show(lab: Lab) -> Exhibit:
    rows: list[list[str | int | float | None]] = []
    for method in _METHODS:
        found = _found(lab, method)
        rate = None if found["learning rate"] is None else f"{found['learning rate']:g}"
        rows.append([method, 100 * found["recall"], 100 * found["esp"], *found["exposures"], rate])
    columns = ["Method", "Recall %", "ESP %", "Exposures, liked group", "Exposures, disliked group", "Learning rate"]
    words = _WORDS.format(items=ITEMS, users=USERS, k=K, floor=FLOOR, slots=USERS * K)
    return Exhibit(EXPERIMENT.name, EXPERIMENT.title, words, ExhibitTable(columns, rows))


EXPERIMENT = Experiment("extreme-case", "Table: the extreme case, a group that nobody likes", _show, steps=_steps)
