import numpy as np
import pytest

from fairsync.search.engines.price_tiers import price_tiers


@pytest.mark.parametrize("seed", range(20))
def test_each_label_with_a_bonus_is_in_one_tier_that_bounds_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = [f"l{at}" for at in range(int(rng.integers(1, 12)))]
    bonuses = np.where(rng.random(len(labels)) < 0.2, -np.inf, rng.choice([0.0, 0.1, 1.0, 7.0], len(labels)))
    if not (bonuses > -np.inf).any():
        bonuses[0] = 0.5
    tiers = price_tiers("brand", labels, bonuses, most=4)
    assert len(tiers) <= 4
    for label, bonus in zip(labels, bonuses.tolist(), strict=True):
        mine = [
            one for one in tiers if one.condition is None or (label in one.condition.values) != one.condition.negated
        ]
        assert len(mine) == (bonus > -np.inf)
        assert all(bonus <= one.highest for one in mine)
