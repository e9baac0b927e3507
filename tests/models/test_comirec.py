"""The attention of ComiRec-SA."""

# mypy: disable-error-code="no-untyped-call"

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch")

from fairsync.models.comirec import ComiRecSA
from fairsync.models.settings import NetworkSettings


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_attention_looks_at_real_items_only() -> None:
    encoder = ComiRecSA(NetworkSettings(dim=4, interests=3, history=5))
    item = drawn(1, 1, 4)
    padded = torch.cat([item, torch.zeros(1, 4, 4)], dim=1)
    found = encoder(padded, torch.tensor([[True, False, False, False, False]]))
    torch.testing.assert_close(found, item.expand(1, 3, 4))  # a weighted mean of one item is the item
