"""Sparse Adam equals Adam on the rows that are used."""

# mypy: disable-error-code="no-untyped-call"

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch")

from fairsync.models.row_adam import Distinct, RowAdam


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_row_adam_is_adam_where_every_row_is_used() -> None:
    table = drawn(5, 3)
    parameter = torch.nn.Parameter(table.clone())
    plain, ours = torch.optim.Adam([parameter], lr=0.05), RowAdam(table, 0.05)
    for seed in range(10):
        gradient = drawn(5, 3, seed=seed + 10)
        parameter.grad = gradient
        plain.step()
        values = table.clone().requires_grad_()
        values.grad = gradient
        ours.step(torch.arange(5), values)
    torch.testing.assert_close(table, parameter.data)


@given(st.lists(st.integers(0, 20), min_size=1, max_size=30))
def test_distinct(items: list[int]) -> None:
    distinct, places = Distinct(21).find(np.array(items))
    assert sorted(distinct.tolist()) == sorted(set(items))
    assert distinct[places].tolist() == items
