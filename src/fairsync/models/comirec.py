"""ComiRec: several interests per user, by attention (SA) or by dynamic routing (DR)."""

# mypy: disable-error-code="misc, no-untyped-call, no-any-return"

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fairsync.models.routing import route

if TYPE_CHECKING:
    from fairsync.models.settings import NetworkSettings


class ComiRecSA(torch.nn.Module):
    """Self-attention with separate weights for each interest, as in [1]_, Section 3.2.

    Positions are counted from the newest item backwards, so that they have the same meaning for any length.

    References
    ----------
    .. [1] Cen et al., "Controllable Multi-Interest Framework for Recommendation", KDD 2020.
    """

    def __init__(self, settings: NetworkSettings) -> None:
        super().__init__()
        self.places = torch.nn.Parameter(torch.randn(settings.history, settings.dim) * 0.1)
        self.hidden = torch.nn.Linear(settings.dim, 4 * settings.dim, bias=False)
        self.attention = torch.nn.Linear(4 * settings.dim, settings.interests, bias=False)

    def forward(self, embedded: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        """Return (n, interests, dim) user vectors."""
        back = (real.sum(dim=1, keepdim=True) - 1 - torch.arange(real.shape[1], device=real.device)).clamp(min=0)
        placed = embedded + torch.nn.functional.embedding(back, self.places)
        logits = self.attention(torch.tanh(self.hidden(placed)))
        weights = logits.masked_fill(~real.unsqueeze(-1), -torch.inf).softmax(dim=1)
        return weights.transpose(1, 2) @ embedded


class ComiRecDR(torch.nn.Module):
    """Dynamic routing with a matrix for each interest, as in [1]_, Section 3.2.

    The authors' program has a matrix for every position and interest. Here all positions share a matrix, which needs a
    twentieth of the weights.

    References
    ----------
    .. [1] Cen et al., "Controllable Multi-Interest Framework for Recommendation", KDD 2020.
    """

    def __init__(self, settings: NetworkSettings) -> None:
        super().__init__()
        dim, interests = settings.dim, settings.interests
        # Near the identity: interests start as sums of items, and differ from each other.
        self.matrices = torch.nn.Parameter(torch.eye(dim) + torch.randn(interests, dim, dim) * 0.2 * dim**-0.5)

    def forward(self, embedded: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        """Return (n, interests, dim) user vectors."""
        start = embedded.new_zeros(1, len(self.matrices), real.shape[1])
        return route(embedded, real, self.matrices, start)
