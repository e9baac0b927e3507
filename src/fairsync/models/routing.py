"""Dynamic routing: assign the items of a history to interests."""

# mypy: disable-error-code="no-untyped-call, no-any-return"

from __future__ import annotations

import torch

_ROUNDS = 3
_TINY = 1e-12  # avoids the infinite gradient of the square root at 0


def squash(vectors: torch.Tensor) -> torch.Tensor:
    """Return the vectors with their lengths squashed below 1, as in capsule networks.

    Examples
    --------
    >>> squash(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[0.5769, 0.7692],
            [0.0000, 0.0000]])
    """
    square = vectors.square().sum(dim=-1, keepdim=True)
    return vectors * ((square + _TINY).sqrt() / (1 + square))


def route(items: torch.Tensor, real: torch.Tensor, matrices: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """Return the interest vectors of users.

    Each interest transforms items by its matrix. In each round, the items are distributed among the interests by the
    softmax of their logits, an interest is the squashed weighted sum of its items, and logits increase where item and
    interest agree. Gradients flow through the last round only, as in the programs of MIND and ComiRec.

    The matrix of an interest is applied to the weighted sum instead of the items, which is the same by linearity and
    far cheaper, because there are few interests and many items.

    Parameters
    ----------
    items
        (n, length, dim) Item vectors, 0 for padding.
    real
        (n, length) Mask of items that are not padding.
    matrices
        (interests, dim, dim) Matrix of each interest.
    logits
        (n or 1, interests, length) Initial logits.

    Returns
    -------
    torch.Tensor
        (n, interests, dim) Interest vectors.
    """
    counted = real.unsqueeze(1)
    fixed, seeing = items.detach(), matrices.detach()
    for _ in range(_ROUNDS - 1):
        found = squash(_through((logits.softmax(dim=1) * counted) @ fixed, seeing))
        logits = logits + _through(found, seeing.mT) @ fixed.mT
    return squash(_through((logits.softmax(dim=1) * counted) @ items, matrices))


def _through(vectors: torch.Tensor, matrices: torch.Tensor) -> torch.Tensor:
    """Multiply the (n, interests, dim) vectors of each interest by its matrix."""
    return torch.bmm(vectors.transpose(0, 1), matrices).transpose(0, 1)
