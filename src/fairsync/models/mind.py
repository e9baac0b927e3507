"""MIND: interests by behaviour-to-interest dynamic routing. Their number depends on the length of the history."""

# mypy: disable-error-code="misc, no-untyped-call, no-any-return"

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fairsync.models.routing import route

if TYPE_CHECKING:
    from fairsync.models.settings import NetworkSettings


class MIND(torch.nn.Module):
    """Behaviour-to-interest routing of [1]_.

    All interests share a matrix, so they differ only by the initial logits of the routing. These are drawn once and
    saved with the model, so that the same history always has the same vectors. The target of a sample selects the
    interest that is trained (the limit of label-aware attention).

    The number of interests of a user is log2 of the history's length. Interests beyond it do not take part in the
    routing and repeat the first one, because a repeated vector does not change the best items.

    References
    ----------
    .. [1] Li et al., "Multi-Interest Network with Dynamic Routing for Recommendation at Tmall", CIKM 2019.
    """

    start: torch.Tensor

    def __init__(self, settings: NetworkSettings) -> None:
        super().__init__()
        self.matrix = torch.nn.Parameter(torch.eye(settings.dim))
        self.register_buffer("start", torch.randn(1, settings.interests, settings.history))
        self.layer = torch.nn.Linear(settings.dim, settings.dim)
        torch.nn.init.eye_(self.layer.weight)
        torch.nn.init.zeros_(self.layer.bias)

    def forward(self, embedded: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        """Return (n, interests, dim) user vectors."""
        interests = self.start.shape[1]
        allowed = real.sum(dim=1, keepdim=True).log2().floor().clamp(min=1)
        beyond = (torch.arange(interests, device=real.device) >= allowed).unsqueeze(-1)
        start = self.start[:, :, : real.shape[1]].masked_fill(beyond, -torch.inf)
        found = self.layer(route(embedded, real, self.matrix.expand(interests, -1, -1), start))
        return torch.where(beyond, found[:, :1], found)
