"""The encoder of YoutubeDNN."""

# mypy: disable-error-code="no-untyped-call"

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch")

from fairsync.models.settings import NetworkSettings
from fairsync.models.youtube_dnn import YoutubeDNN


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_youtube_dnn_starts_as_the_mean() -> None:
    vectors, real = drawn(1, 3, 4), torch.tensor([[True, True, False]])
    vectors[0, 2] = 0
    found = YoutubeDNN(NetworkSettings(dim=4))(vectors, real)
    torch.testing.assert_close(found[0], (vectors[0, 0] + vectors[0, 1]) / 2)
