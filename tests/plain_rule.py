"""A rule for prices in the plainest loop: it shares no line with the policies and the retriever."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

import plain
from worlds import World

# Exposures of each group and requests served so far in, one price per group out.
Rule = Callable[[list[int], int], list[float]]


def retrieve(world: World, users: npt.NDArray[np.float64], batch_size: int, rule: Rule) -> list[list[int]]:
    """Return the rows of each request's candidates, the most relevant first; counts restart with each horizon."""
    group, n_groups = world.catalog.group_of.tolist(), world.catalog.n_groups
    exposures, prices, served, in_batch, answers = [0] * n_groups, [0.0] * n_groups, 0, 0, []
    for user in users:
        if served == world.horizon:
            exposures, served, in_batch = [0] * n_groups, 0, batch_size
        if in_batch == batch_size:
            prices, in_batch = rule(exposures, served), 0
        [rows], [relevance] = plain.search(world.catalog, user[None, None], np.array(prices), world.k)
        for row in rows:
            exposures[group[row]] += 1
        served, in_batch = served + 1, in_batch + 1
        answers.append([row for _, row in sorted(zip([-r for r in relevance], rows, strict=True))])
    return answers
