"""Sampled softmax loss: the target against sampled negatives."""

# mypy: disable-error-code="misc, no-untyped-call, no-any-return"

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import embedding


def sampled_softmax(
    users: torch.Tensor,
    items: torch.Tensor,
    targets: torch.Tensor,
    negatives: torch.Tensor,
    log_expected: torch.Tensor,
    sharpness: float,
) -> torch.Tensor:
    """Return the mean loss of a batch. All targets share the same negatives.

    Scores of targets and negatives are the maximum over a user's interests, as in retrieval. (Published programs score
    negatives by the interest of the target only. Then the other interests are not pushed away from wrong items, and
    these are retrieved.) A negative that equals the target is masked.

    Parameters
    ----------
    users
        (n, dim) or (n, interests, dim) User vectors.
    items
        (m, dim) Item vectors.
    targets, negatives
        (n,) and (number,) Rows of ``items``.
    log_expected
        (m,) Logarithm of the expected number of occurrences among the negatives, which is subtracted from the scores.
    sharpness
        Factor of the inner products.

    Examples
    --------
    >>> items, even = torch.eye(3), torch.zeros(3)
    >>> sampled_softmax(items[:1], items, torch.tensor([0]), torch.tensor([1, 2, 0]), even, sharpness=1.0)
    tensor(0.5514)
    """
    if users.dim() == 2:
        users = users.unsqueeze(1)
    suspects = torch.isin(targets, negatives).nonzero().squeeze(1)  # only these few are compared with all negatives
    rows, columns = (targets[suspects].unsqueeze(1) == negatives).nonzero(as_tuple=True)
    corrections = log_expected.index_select(0, targets), log_expected.index_select(0, negatives)
    vectors = embedding(targets, items), embedding(negatives, items)
    return _Loss.apply(sharpness * users, *vectors, *corrections, suspects[rows], columns)


class _Loss(torch.autograd.Function):
    """The loss with explicit gradients: the only large array is allocated once and reused in place."""

    @staticmethod
    def forward(
        ctx: Any,
        users: torch.Tensor,
        wanted: torch.Tensor,
        others: torch.Tensor,
        of_wanted: torch.Tensor,
        of_others: torch.Tensor,
        rows: torch.Tensor,
        columns: torch.Tensor,
    ) -> torch.Tensor:
        n, interests, dim = users.shape
        right, chosen = (users @ wanted.unsqueeze(-1)).squeeze(-1).max(dim=1)
        right -= of_wanted
        flat = users.reshape(-1, dim)
        every = torch.addmm(of_others.neg(), flat, others.T).view(n, interests, len(others))
        if interests > 1:
            wrong, winner = every.max(dim=1)
        else:
            wrong = every.squeeze(1)
        wrong[rows, columns] = -torch.inf
        top = torch.maximum(wrong.amax(dim=1), right)
        shares = wrong.sub_(top.unsqueeze(1)).exp_()  # not normalised here: smaller arrays are divided by the sum below
        share = (right - top).exp()
        total = shares.sum(dim=1) + share
        if interests > 1:  # the gradient goes to the interest with the maximum score
            every.zero_().scatter_(1, winner.unsqueeze(1), shares.unsqueeze(1))
        shares = every.view(n * interests, len(others))
        each = (total * n).reciprocal().unsqueeze(1)
        pull = share.unsqueeze(1) * each - 1 / n
        of_users = (shares @ others).view(n, interests, dim) * each.unsqueeze(1)
        place = torch.arange(n, device=users.device), chosen
        of_users[place] += pull * wanted
        ctx.save_for_backward(of_users, pull * users[place], shares.T @ (users * each.unsqueeze(1)).reshape(-1, dim))
        return (total.log() - right + top).mean()

    @staticmethod
    def backward(ctx: Any, *outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        slopes = (outputs[0] * gradient for gradient in ctx.saved_tensors)
        return (*slopes, None, None, None, None)
