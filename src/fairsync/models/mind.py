"""MIND: interests by dynamic routing from behaviour to interest, as many as the history is long enough for."""

# mypy: disable-error-code="misc, no-untyped-call, no-any-return"

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fairsync.models.routing import route

if TYPE_CHECKING:
    from fairsync.models.settings import NetworkSettings


class MIND(torch.nn.Module):
    """Behaviour-to-interest routing of [1]_.

    All interests see an item through the same matrix, so that they differ only by where routing starts. That
    is drawn once and kept with the model: the same history has the same vectors at any time. Which interest
    a sample is trained by is decided by its target (the limit of their label-aware attention).

    A user has as many interests as log2 of the history's length. Those beyond take part in nothing, and repeat
    the first one: a repeated vector never changes which items are best.

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
