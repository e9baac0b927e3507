"""The sampled softmax against a plain one."""

# mypy: disable-error-code="no-untyped-call"

from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch")

from fairsync.models.softmax import sampled_softmax


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


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
