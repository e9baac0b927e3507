import numpy as np
import numpy.typing as npt
import pytest

from fairsync.catalog import Catalog
from fairsync.data import Synthetic, synthetic
from fairsync.data.synthetic import group_sizes
from fairsync.errors import InvalidInputError
from fairsync.search import ExactIndex


@pytest.fixture(scope="module")
def data() -> Synthetic:
    return synthetic(n_items=6_000, n_groups=60, n_users=800, dim=16, seed=5, n_past=300)


def liked_groups(data: Synthetic, users: npt.NDArray[np.float32], k: int = 20) -> npt.NDArray[np.int64]:
    """Return (users, k) the groups of the best items of each user."""
    catalog = Catalog(data.embeddings, data.groups)
    hits = ExactIndex(catalog).search(users.reshape(len(users), -1, users.shape[-1]), None, k)
    return data.groups[hits.rows]


def test_shapes_and_types(data: Synthetic) -> None:
    assert data.embeddings.shape == (6_000, 16)
    assert data.users.shape == (800, 16)
    assert data.past_users.shape == (300, 16)
    assert {a.dtype for a in (data.embeddings, data.users, data.past_users)} == {np.dtype(np.float32)}
    assert np.isfinite(data.embeddings).all()
    assert np.isfinite(data.users).all()
    assert np.square(data.embeddings).sum(axis=1).mean() == pytest.approx(1.0, rel=1e-4)


def test_the_seed_decides_everything(data: Synthetic) -> None:
    again = synthetic(n_items=6_000, n_groups=60, n_users=800, dim=16, seed=5, n_past=300)
    other = synthetic(n_items=6_000, n_groups=60, n_users=800, dim=16, seed=6, n_past=300)
    for name in ("embeddings", "groups", "users", "past_users"):
        assert np.array_equal(getattr(data, name), getattr(again, name))
        assert not np.array_equal(getattr(data, name), getattr(other, name))


def test_sizes_are_those_of_a_real_catalog() -> None:
    sizes = group_sizes(367_982, 165)
    real = np.array([286_569, 23_876, 11_365, 5_535, 2_862, 2_271, 2_092, 1_801, 1_775, 1_647])
    assert sizes.sum() == 367_982
    assert sizes.min() == 52
    assert (np.diff(sizes) <= 0).all()
    assert np.abs(np.log(sizes[:10] / real)).max() < np.log(1.5)


@pytest.mark.parametrize(("items", "groups"), [(1, 1), (300, 2), (165, 1), (1_000, 65), (20_000, 165)])
def test_sizes_add_up_and_no_group_is_empty(items: int, groups: int) -> None:
    sizes = group_sizes(items, groups)
    assert sizes.shape == (groups,)
    assert sizes.sum() == items
    assert sizes.min() >= 1


def test_the_shape_of_the_sizes_can_be_chosen(data: Synthetic) -> None:
    assert np.bincount(data.groups).tolist() == group_sizes(6_000, 60).tolist()
    sizes = group_sizes(10_000, 10, largest_share=0.3, tail_exponent=0.0, smallest_share=0.01)
    assert sizes[0] == pytest.approx(3_000, abs=10)
    assert np.ptp(sizes[1:]) == 0


def test_the_spectrum_decays(data: Synthetic) -> None:
    values = np.linalg.eigvalsh(np.cov(data.embeddings.T))[::-1]
    assert values[0] > 4 * values[8] > 4 * values[15] > 0


def test_small_groups_are_found_rarely(data: Synthetic) -> None:
    exposures = np.bincount(liked_groups(data, data.users).ravel(), minlength=60)
    assert exposures[0] == exposures.max()
    assert exposures[0] > 0.25 * exposures.sum()
    assert exposures[:10].sum() > 0.8 * exposures.sum()
    assert np.median(exposures[30:]) < exposures.mean() / 3


def test_users_differ_in_the_groups_they_like(data: Synthetic) -> None:
    liked = liked_groups(data, data.users)
    share = np.stack([np.bincount(row, minlength=60) for row in liked]) / liked.shape[1]
    alike = (share**2).sum(axis=1).mean()  # two candidates of one user are of the same group
    everyone = (share.mean(axis=0) ** 2).sum()  # ... of different users
    assert alike > 1.2 * everyone


def test_requests_lie_where_items_are(data: Synthetic) -> None:
    # Of vectors as long, but in any direction, the best items are less relevant.
    anywhere = data.users * np.random.default_rng(0).choice([-1, 1], size=data.users.shape)
    best, other = ((users @ data.embeddings.T).max(axis=1).mean() for users in (data.users, anywhere))
    assert best > 1.04 * other


def test_past_users_are_like_those_to_come(data: Synthetic) -> None:
    past, present = (
        np.bincount(liked_groups(data, users).ravel(), minlength=60) / (20 * len(users))
        for users in (data.past_users, data.users)
    )
    assert np.abs(past - present).sum() < 0.3
    assert not np.array_equal(data.past_users, data.users[:300])


def test_several_interests_lead_to_several_groups() -> None:
    many = synthetic(n_items=6_000, n_groups=60, n_users=200, dim=16, seed=5, n_past=0, interests=4, largest_share=0.4)
    assert many.users.shape == (200, 4, 16)
    assert many.past_users.shape == (0, 4, 16)
    first, second = (liked_groups(many, many.users[:, i]) for i in (0, 1))
    shared = np.mean([len(np.intersect1d(a, b)) / len(np.union1d(a, b)) for a, b in zip(first, second, strict=True)])
    assert shared < 0.5


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"n_items": 10}, "n_items must be a whole number, 60 or more, got 10"),
        ({"n_groups": 0}, "n_groups must be a whole number, 1 or more"),
        ({"dim": 0}, "dim must be a whole number, 1 or more"),
        ({"n_users": -1}, "n_users must be a whole number, 0 or more"),
        ({"interests": 1.5}, "interests must be a whole number"),
        ({"largest_share": 1.2}, "largest_share must be above 0 and at most 1"),
        ({"n_items": 100, "smallest_share": 0.02}, "With 100 items the largest group would have 0, the next 7"),
        ({"largest_share": 0.1}, "raise largest_share"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, float], why: str) -> None:
    arguments = {"n_items": 6_000, "n_groups": 60, "n_users": 10, "dim": 4, **wrong}
    with pytest.raises(InvalidInputError, match=why):
        synthetic(**arguments)  # type: ignore[arg-type]
