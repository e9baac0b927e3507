"""Dynamic routing: items of a history find the interest that they belong to."""

# mypy: disable-error-code="no-untyped-call, no-any-return"

from __future__ import annotations

import torch

_ROUNDS = 3
_TINY = 1e-12  # a root has no slope at 0


def squash(vectors: torch.Tensor) -> torch.Tensor:
    """Return the vectors with lengths brought below 1, long ones nearly to it, as capsules have them.

    Examples
    --------
    >>> squash(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[0.5769, 0.7692],
            [0.0000, 0.0000]])
    """
    square = vectors.square().sum(dim=-1, keepdim=True)
    return vectors * ((square + _TINY).sqrt() / (1 + square))


def route(items: torch.Tensor, real: torch.Tensor, matrices: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """Return the interests of users.

    Each interest sees the items through its matrix. In each round every item divides itself among the interests
    by its logits, an interest is the squashed sum of what it got, and logits rise where item and interest
    agree. Gradients flow through the last round only, as in the programs of MIND and ComiRec: the rounds before
    settle who belongs where.

    A sum of items seen through a matrix is the sum of the items, seen through it. So the matrix is applied to
    the few interests and never to the many items, which are the same for all interests.

    Parameters
    ----------
    items
        (n, length, dim), 0 for padding.
    real
        (n, length) which of them are no padding.
    matrices
        (interests, dim, dim).
    logits
        (n or 1, interests, length) to start from.

    Returns
    -------
    torch.Tensor
        (n, interests, dim).
    """
    counted = real.unsqueeze(1)
    fixed, seeing = items.detach(), matrices.detach()
    for _ in range(_ROUNDS - 1):
        found = squash(_through((logits.softmax(dim=1) * counted) @ fixed, seeing))
        logits = logits + _through(found, seeing.mT) @ fixed.mT
    return squash(_through((logits.softmax(dim=1) * counted) @ items, matrices))


def _through(vectors: torch.Tensor, matrices: torch.Tensor) -> torch.Tensor:
    """Return (n, interests, dim) vectors, those of each interest multiplied by its matrix."""
    return torch.bmm(vectors.transpose(0, 1), matrices).transpose(0, 1)
