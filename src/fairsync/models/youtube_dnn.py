"""YoutubeDNN: mean pooling of the history and a linear layer."""

# mypy: disable-error-code="misc, no-untyped-call, no-any-return"

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from fairsync.models.settings import NetworkSettings


class YoutubeDNN(torch.nn.Module):
    """The candidate generation network of [1]_, with items as the only feature.

    It has one linear layer, as in the comparisons of [2]_, initialised as the identity, so that training starts from
    mean pooling instead of noise.

    References
    ----------
    .. [1] Covington, Adams, Sargin, "Deep Neural Networks for YouTube Recommendations", RecSys 2016.
    .. [2] Cen et al., "Controllable Multi-Interest Framework for Recommendation", KDD 2020.
    """

    def __init__(self, settings: NetworkSettings) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(settings.dim, settings.dim)
        torch.nn.init.eye_(self.layer.weight)
        torch.nn.init.zeros_(self.layer.bias)

    def forward(self, embedded: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        """Return (n, dim) user vectors."""
        return self.layer(embedded.sum(dim=1) / real.sum(dim=1, keepdim=True))
