"""Dynamic routing against a loop over items."""

# mypy: disable-error-code="no-untyped-call"

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch")

from fairsync.models.routing import route, squash


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


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
