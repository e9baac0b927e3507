"""The number of interests of MIND."""

# mypy: disable-error-code="no-untyped-call"

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch")

from fairsync.models.mind import MIND
from fairsync.models.settings import NetworkSettings


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_short_histories_have_fewer_interests() -> None:
    encoder = MIND(NetworkSettings(dim=8, interests=4, history=16))
    for length, interests in [(1, 1), (3, 1), (4, 2), (8, 3), (16, 4)]:
        found = encoder(drawn(1, length, 8), torch.ones(1, length, dtype=torch.bool))
        assert len(torch.unique(found[0].round(decimals=5), dim=0)) == interests
