"""GRU4Rec: a recurrent network over the history."""

# mypy: disable-error-code="misc, no-untyped-call, no-any-return"

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from fairsync.models.settings import NetworkSettings


class GRU4Rec(torch.nn.Module):
    """One layer of gated recurrent units, as in [1]_. The user vector is its state after the last item.

    References
    ----------
    .. [1] Hidasi et al., "Session-based Recommendations with Recurrent Neural Networks", ICLR 2016.
    """

    def __init__(self, settings: NetworkSettings) -> None:
        super().__init__()
        self.reader = torch.nn.GRU(settings.dim, settings.dim, batch_first=True)
        self.layer = torch.nn.Linear(settings.dim, settings.dim)

    def forward(self, embedded: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        """Return (n, dim) user vectors."""
        states, _ = self.reader(embedded)
        # Padding follows the last item, so it does not affect the state after that item.
        last = real.sum(dim=1) - 1
        return self.layer(states[torch.arange(len(states), device=states.device), last])
