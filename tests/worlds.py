"""Small random worlds: catalogs, users and floors that can just be met."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fairsync.catalog import Catalog


@dataclass(frozen=True)
class World:
    catalog: Catalog
    users: npt.NDArray[np.float64]
    k: int
    floors: dict[int, int]

    @property
    def horizon(self) -> int:
        return len(self.users)


def make_world(
    seed: int,
    *,
    groups: int = 4,
    items: int = 30,
    horizon: int = 40,
    k: int = 4,
    tightness: float = 0.5,
    even: bool = True,
    order: str = "random",
    scale: float = 1.0,
    interests: int = 1,
    dim: int = 5,
) -> World:
    """Make a world whose floors take ``tightness`` of the slots, or as much of that as its groups can hold."""
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(groups), rng.integers(groups, size=max(items - groups, 0))])
    if not even:  # one group has most of the items
        labels[groups:][rng.random(len(labels) - groups) < 0.7] = 0
    k = min(k, len(labels))
    centres = rng.normal(size=(groups, dim))
    embeddings = (centres[labels] + 0.5 * rng.normal(size=(len(labels), dim))) * scale
    users = rng.normal(size=(horizon, interests, dim)) + 0.5 * centres[rng.integers(groups, size=horizon)][:, None]
    if order != "random":  # the users who like group 0 come all at the start, or all at the end
        liking = (users @ centres[0]).max(axis=1)
        users = users[np.argsort(-liking if order == "first" else liking)]
    capacities = np.minimum(np.bincount(labels, minlength=groups), k)
    weights = np.ones(groups) if even else rng.dirichlet(np.full(groups, 0.3))
    wanted, left = np.zeros(groups, dtype=int), int(tightness * horizon * k)
    for group in rng.permutation(groups):  # first what is wished for, then whatever still fits
        wanted[group] = min(int(weights[group] / weights.sum() * tightness * horizon * k), horizon * capacities[group])
    left -= int(wanted.sum())
    for group in rng.permutation(groups):
        more = min(max(left, 0), horizon * int(capacities[group]) - int(wanted[group]))
        wanted[group] += more
        left -= more
    floors = {int(group): int(floor) for group, floor in enumerate(wanted)}
    return World(Catalog(embeddings, labels), users if interests > 1 else users[:, 0], k, floors)


def floors_at_the_edge(
    rng: np.random.Generator, capacities: npt.NDArray[np.int64], k: int, horizon: int
) -> dict[int, int]:
    """Floors that cannot be raised: either every slot is promised, or every group has all that is possible."""
    wanted, left = np.zeros(len(capacities), dtype=np.int64), horizon * k
    for group in rng.permutation(len(capacities)):
        wanted[group] = min(left, horizon * int(capacities[group]))
        left -= int(wanted[group])
    for _ in range(3):  # move some of it, so that several groups are tight at the same time
        a, b = rng.integers(len(capacities), size=2)
        much = min(int(wanted[a]), horizon * int(capacities[b]) - int(wanted[b])) // 2
        wanted[a] -= much
        wanted[b] += much
    return {int(group): int(floor) for group, floor in enumerate(wanted)}
