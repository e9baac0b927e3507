"""The parts of the networks, each against the plainest calculation."""

# mypy: disable-error-code="no-untyped-call"

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch")

from fairsync.models.comirec import ComiRecSA
from fairsync.models.mind import MIND
from fairsync.models.routing import route, squash
from fairsync.models.row_adam import Distinct, RowAdam
from fairsync.models.settings import NetworkSettings
from fairsync.models.softmax import sampled_softmax
from fairsync.models.youtube_dnn import YoutubeDNN


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_youtube_dnn_starts_as_the_mean() -> None:
    vectors, real = drawn(1, 3, 4), torch.tensor([[True, True, False]])
    vectors[0, 2] = 0
    found = YoutubeDNN(NetworkSettings(dim=4))(vectors, real)
    torch.testing.assert_close(found[0], (vectors[0, 0] + vectors[0, 1]) / 2)


def test_attention_looks_at_real_items_only() -> None:
    encoder = ComiRecSA(NetworkSettings(dim=4, interests=3, history=5))
    item = drawn(1, 1, 4)
    padded = torch.cat([item, torch.zeros(1, 4, 4)], dim=1)
    found = encoder(padded, torch.tensor([[True, False, False, False, False]]))
    torch.testing.assert_close(found, item.expand(1, 3, 4))  # a weighted mean of one item is the item


def test_routing_against_a_loop_over_items() -> None:
    items, matrices, start = drawn(2, 3, 4), drawn(2, 4, 4, seed=1), drawn(1, 2, 3, seed=2)
    real = torch.tensor([[True, True, True], [True, False, False]])
    items = items * real.unsqueeze(-1)
    found = route(items, real, matrices, start)
    for user in range(2):
        logits = start[0].clone()
        for _ in range(3):
            shares = logits.softmax(dim=0)
            interests = []
            for interest in range(2):
                total = torch.zeros(4)
                for place in range(3):
                    if real[user, place]:
                        total += shares[interest, place] * (items[user, place] @ matrices[interest])
                interests.append(total * total.norm() / (1 + total.norm() ** 2))
            for interest in range(2):
                for place in range(3):
                    logits[interest, place] += (items[user, place] @ matrices[interest]) @ interests[interest]
        torch.testing.assert_close(found[user], torch.stack(interests))


def test_squash_of_nothing_has_a_gradient() -> None:
    nothing = torch.zeros(1, 3, requires_grad=True)
    squash(nothing).sum().backward()
    assert nothing.grad is not None
    assert torch.isfinite(nothing.grad).all()


def test_short_histories_have_fewer_interests() -> None:
    encoder = MIND(NetworkSettings(dim=8, interests=4, history=16))
    for length, interests in [(1, 1), (3, 1), (4, 2), (8, 3), (16, 4)]:
        found = encoder(drawn(1, length, 8), torch.ones(1, length, dtype=torch.bool))
        assert len(torch.unique(found[0].round(decimals=5), dim=0)) == interests


def test_loss_against_a_plain_softmax() -> None:
    users, items = drawn(2, 3, 4).requires_grad_(), drawn(6, 4, seed=1).requires_grad_()
    targets, negatives = torch.tensor([0, 5]), torch.tensor([1, 2, 0, 2])
    log_expected = drawn(6, seed=2)
    plain = []
    for user, target in zip(users, targets.tolist(), strict=True):
        others = [item for item in negatives.tolist() if item != target]
        scores = torch.stack([7 * (user @ items[item]).max() - log_expected[item] for item in [target, *others]])
        plain.append(-scores.log_softmax(dim=0)[0])
    found = sampled_softmax(users, items, targets, negatives, log_expected, sharpness=7.0)
    expected = torch.stack(plain).mean()
    torch.testing.assert_close(found, expected)
    slopes = torch.autograd.grad(2 * expected, [users, items])
    for slope, ours in zip(slopes, torch.autograd.grad(2 * found, [users, items]), strict=True):
        torch.testing.assert_close(ours, slope)


def test_correction_makes_the_sample_stand_for_the_catalog() -> None:
    """With popular negatives the corrected loss has the mean of the full softmax's; the uncorrected has not."""
    users, items = drawn(1, 4), drawn(50, 4, seed=1)
    shares = torch.linspace(1, 20, 50, dtype=torch.float64)
    shares /= shares.sum()
    number, target = 20_000, torch.tensor([3])
    rng = np.random.default_rng(0)
    negatives = torch.as_tensor(rng.choice(50, number, p=shares.numpy()))
    others = torch.arange(50) != 3
    full = torch.nn.functional.softplus((users @ items[others].T).logsumexp(dim=1) - users @ items[3])
    corrected = sampled_softmax(users, items, target, negatives, (shares * number).log().float(), 1.0)
    even = torch.full((50,), np.log(number / 50))
    assert float(corrected) != pytest.approx(
        float(sampled_softmax(users, items, target, negatives, even, 1.0)), rel=0.05
    )
    # The target has no sampling of its own to be corrected for but the same term, so its score is put back.
    log_expected = (shares * number).log().float()
    log_expected[3] = 0
    again = sampled_softmax(users, items, target, negatives, log_expected, 1.0)
    assert float(again) == pytest.approx(float(full), rel=0.02)


def test_row_adam_is_adam_where_every_row_is_used() -> None:
    table = drawn(5, 3)
    parameter = torch.nn.Parameter(table.clone())
    plain, ours = torch.optim.Adam([parameter], lr=0.05), RowAdam(table, 0.05)
    for seed in range(10):
        gradient = drawn(5, 3, seed=seed + 10)
        parameter.grad = gradient
        plain.step()
        values = table.clone().requires_grad_()
        values.grad = gradient
        ours.step(torch.arange(5), values)
    torch.testing.assert_close(table, parameter.data)


@given(st.lists(st.integers(0, 20), min_size=1, max_size=30))
def test_distinct(items: list[int]) -> None:
    distinct, places = Distinct(21).find(np.array(items))
    assert sorted(distinct.tolist()) == sorted(set(items))
    assert distinct[places].tolist() == items
