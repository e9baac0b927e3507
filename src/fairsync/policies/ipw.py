"""The paper's baseline "IPW": a subsidy that grows with the inverse of the exposure that a group has had."""

import numpy as np

from fairsync.errors import InvalidInputError
from fairsync.policies.base import Counts, Floats, Memoryless, Terms


class IPW(Memoryless):
    r"""Inverse propensity weighting, with the exposure of its group as the propensity of an item.

    After n of T requests :math:`m_g n / T` exposures of group g were due and :math:`e_g` were given. The propensity is
    the ratio of the two; its inverse is :math:`w_g`, and

    .. math::  \mu_g = -\lambda \log_2(1 + w_g), \quad w_g = \frac{m_g \, n / T}{\max(e_g, 1)}
               \text{ while } e_g < m_g, \text{ else } 0

    The paper (section "Baselines and Base Models", after Wang & Joachims, WSDM 2023) has one sentence on it: the
    exposure of the group is the propensity, and a trade-off coefficient :math:`\lambda` weighs it. How the weight
    enters and what floors do is left open. Of the readings tried, this is the strongest (docs/baselines.md):

    - Retrieval models are trained with a softmax, so their scores are logarithms of odds. To weigh the odds is to *add*
      the logarithm of the weight, which makes it a price. It grows slowly, so that large batches do not swing.
    - The propensity is relative to what was due. Where all floors are equal that is a group's share of exposures, up
      to a factor; where they differ, it respects them.
    - It ends with the floor. The paper's IPW knows no floors, and would go on paying.

    It guarantees nothing: a group on schedule has the subsidy :math:`\lambda`, and if that is not enough to stay on
    schedule, it falls behind until the weight has grown.

    Parameters
    ----------
    coefficient
        :math:`\lambda`, in units of relevance: the subsidy of a group that is exactly on schedule. It depends on the
        scale of the scores (twice the scores need twice the coefficient), not on the horizon. The paper tunes it; on
        scores of about 1 the range is 1e-2 to 1.

    Examples
    --------
    Half of the horizon has passed, so 6 of 12 exposures are due. Group 0 is on schedule, group 1 has a third of what is
    due, and group 2 has reached its floor.

    >>> terms = Terms(np.array([12, 12, 12]), np.array([2, 2, 2]), k=2, horizon=20, batch_size=1)
    >>> IPW(0.5).decide(terms, np.array([6, 2, 12]), served=10).tolist()
    [-0.5, -1.0, 0.0]
    """

    name = "ipw"

    def __init__(self, coefficient: float = 0.1) -> None:
        if not (np.isfinite(coefficient) and coefficient > 0):
            raise InvalidInputError(f"coefficient must be a positive number, got {coefficient!r}.")
        self.coefficient = float(coefficient)

    def decide(self, terms: Terms, exposures: Counts, served: int) -> Floats:
        """Return minus the coefficient times the logarithm of the weight of each group below its floor."""
        due = terms.floors * (served / terms.horizon)
        weights = due / np.maximum(exposures, 1)
        return np.where(exposures < terms.floors, -self.coefficient * np.log2(1 + weights), 0.0)
