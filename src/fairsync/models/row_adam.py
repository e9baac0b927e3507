"""Sparse Adam: update only the rows of a table that a step used, in time independent of the table's size."""

# mypy: disable-error-code="no-untyped-call, no-any-return"

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MEAN, _SQUARE, _TINY = 0.9, 0.999, 1e-8


class RowAdam:
    """Adam that updates only the rows with a gradient. The moments of other rows are unchanged.

    A step of plain Adam updates every item of the catalog. With millions of items, nearly all of the time would be
    spent on items without a gradient.

    Parameters
    ----------
    table
        (n, dim) Table that is updated in place.
    learning_rate
        Learning rate.

    Examples
    --------
    >>> table = torch.zeros(3, 2)
    >>> adam = RowAdam(table, learning_rate=0.1)
    >>> values = table[2:].clone().requires_grad_()
    >>> values.grad = torch.tensor([[5.0, -5.0]])
    >>> adam.step(torch.tensor([2]), values)
    >>> table
    tensor([[ 0.0000,  0.0000],
            [ 0.0000,  0.0000],
            [-0.1000,  0.1000]])
    """

    def __init__(self, table: torch.Tensor, learning_rate: float) -> None:
        self.table, self.learning_rate, self.steps = table, learning_rate, 0
        # The moments of the gradient and of its square share an array: one gather and one scatter per step.
        self.moments = torch.zeros(len(table), 2, table.shape[1], device=table.device)

    def step(self, rows: torch.Tensor, values: torch.Tensor) -> None:
        """Update distinct ``rows``. ``values`` are their contents, with a gradient."""
        gradient = values.grad
        if gradient is None:
            return
        self.steps += 1
        moments = self.moments.index_select(0, rows)
        mean, square = moments.unbind(dim=1)
        mean.lerp_(gradient, 1 - _MEAN)
        square.mul_(_SQUARE).addcmul_(gradient, gradient, value=1 - _SQUARE)
        self.moments.index_copy_(0, rows, moments)
        size = self.learning_rate / (1 - _MEAN**self.steps)
        root = square.div(1 - _SQUARE**self.steps).sqrt_().add_(_TINY)
        self.table.index_copy_(0, rows, values.detach().addcdiv(mean, root, value=-size))


class Distinct:
    """Finds distinct items and the inverse mapping without sorting, in time linear in the number of given items.

    Parameters
    ----------
    n_items
        Number of items of the catalog.

    Examples
    --------
    >>> distinct, places = Distinct(10).find(np.array([7, 3, 7, 9]))
    >>> distinct.tolist(), distinct[places].tolist()
    ([3, 7, 9], [7, 3, 7, 9])
    """

    def __init__(self, n_items: int) -> None:
        self._place = np.empty(n_items, dtype=np.int64)

    def find(self, items: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the distinct items, and for each of ``items`` its index among them."""
        numbers = np.arange(len(items))
        self._place[items] = numbers  # the last one of equal items is kept
        distinct = items[self._place[items] == numbers].astype(np.int64)
        self._place[distinct] = numbers[: len(distinct)]
        return distinct, self._place[items]
