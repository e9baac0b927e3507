"""The paper's baseline "regularized-fair": a group pays for every exposure that it has beyond the worst-off one."""

import numpy as np

from fairsync.errors import InvalidInputError
from fairsync.policies.base import Counts, Floats, Memoryless, Terms


class RegularizedFair(Memoryless):
    r"""Algorithm 2 of the paper (appendix "Regularized-fair Algorithm"): towards equal exposure.

    .. math::  \mu_g = \lambda \, (e_g - \min_h e_h)

    It is named in the paper's section "Baselines and Base Models" and follows P-MMF (Xu et al., WWW 2023). The step is
    printed for every request; here, as for every policy, prices change once per batch.

    It guarantees nothing and does not use the floors: it pulls *all* groups together, those with many exposures too,
    whether a floor needs it or not. A coefficient large enough for every floor to hold costs much more than needed.

    Parameters
    ----------
    coefficient
        :math:`\lambda`, in units of relevance per exposure. It depends on the scale of the scores (twice the scores
        need twice the coefficient) and on the number of exposures (twice the horizon needs half of it). The paper
        tunes it; on scores of about 1 and some thousand requests 1e-5 to 1e-2 goes from no effect to near equality.

    Examples
    --------
    Group 1 is the worst off, with 2 exposures; group 0 has 5 more, group 2 has 1 more.

    >>> terms = Terms(np.array([4, 4, 4]), np.array([2, 2, 2]), k=2, horizon=10, batch_size=1)
    >>> RegularizedFair(0.5).decide(terms, np.array([7, 2, 3]), served=6).tolist()
    [2.5, 0.0, 0.5]
    """

    name = "regularized-fair"

    def __init__(self, coefficient: float = 3e-4) -> None:
        if not (np.isfinite(coefficient) and coefficient > 0):
            raise InvalidInputError(f"coefficient must be a positive number, got {coefficient!r}.")
        self.coefficient = float(coefficient)

    def decide(self, terms: Terms, exposures: Counts, served: int) -> Floats:
        """Return the coefficient times the distance from the worst-off group."""
        gaps: Floats = (exposures - exposures.min()).astype(np.float64)
        return self.coefficient * gaps
