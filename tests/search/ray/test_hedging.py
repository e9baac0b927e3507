"""The delay after which a request is hedged."""

import importlib.util

import pytest


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")
def test_the_hedge_delay_is_a_multiple_of_the_median_within_bounds() -> None:
    from fairsync.search.ray.hedging import HedgeDelay

    delay = HedgeDelay(deadline=5.0)
    for seconds in [0.02] * 60 + [3.0] * 40:  # a few slow ones do not make slow usual
        delay.observe(seconds)
    assert delay.seconds() == pytest.approx(0.2)
    for _ in range(101):
        delay.observe(1e-4)
    assert delay.seconds() == pytest.approx(0.1)
    for _ in range(101):
        delay.observe(1.0)
    assert delay.seconds() == pytest.approx(1.25)
    assert HedgeDelay(5.0, hedge=0.7).seconds() == 0.7
