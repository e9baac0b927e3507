"""The extreme case of the paper's appendix: no user likes the second group, and it still gets its floor.

2 groups of 5 items, 10,000 users, K = 5, both floors 2,000. Every user is near the items of the first group
(distance 0 to 0.4) and far from those of the second (0.4 to 1.0). The paper reports ESP 100 %, recall 0.96, and
48,000 and 2,000 exposures.
"""

import numpy as np
import numpy.typing as npt
import pytest

from fairsync.catalog import Catalog
from fairsync.hindsight import hindsight
from fairsync.policies import FairSync
from fairsync.retriever import FairRetriever

USERS, K, FLOOR = 10_000, 5, 2_000


@pytest.fixture(scope="module")
def world() -> tuple[Catalog, npt.NDArray[np.float64]]:
    rng = np.random.default_rng(0)
    # With unit vectors as items, a user's coordinates are its relevance to them: minus the distance.
    users = -np.concatenate([rng.uniform(0, 0.4, (USERS, 5)), rng.uniform(0.4, 1.0, (USERS, 5))], axis=1)
    return Catalog(np.eye(10), ["liked"] * 5 + ["disliked"] * 5), users


def recall(ids: npt.NDArray[np.int64]) -> float:
    """Share of each user's five nearest items, those of the liked group, among the candidates."""
    return float((ids < 5).mean())


@pytest.mark.parametrize("batch_size", [1, 16, 512])
def test_guaranteed_is_exact(world: tuple[Catalog, npt.NDArray[np.float64]], batch_size: int) -> None:
    catalog, users = world
    retriever = FairRetriever(catalog, k=K, floors=FLOOR, horizon=USERS, batch_size=batch_size)
    found = retriever.retrieve(users)
    assert retriever.report().exposures == {"liked": 48_000, "disliked": 2_000}
    assert recall(found.ids) == 0.96


def test_fairsync_gets_there_with_a_tuned_learning_rate(
    world: tuple[Catalog, npt.NDArray[np.float64]],
) -> None:
    catalog, users = world
    retriever = FairRetriever(
        catalog, k=K, floors=FLOOR, horizon=USERS, policy=FairSync(learning_rate=0.01), batch_size=4
    )
    found = retriever.retrieve(users)
    report = retriever.report()
    assert report.esp == 1.0
    assert round(recall(found.ids), 2) == 0.96
    assert report.exposures["disliked"] == pytest.approx(2_000, rel=0.01)


def test_hindsight_agrees(world: tuple[Catalog, npt.NDArray[np.float64]]) -> None:
    catalog, users = world
    assert hindsight(catalog, users, k=K, floors=FLOOR).exposures == {"liked": 48_000, "disliked": 2_000}
