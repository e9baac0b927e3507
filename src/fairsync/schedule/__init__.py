"""Promises per window of time: windows, a traffic forecast, and plans that turn both into floors and horizons.

This package is pure arithmetic: it reads no clock and no file. The present moment is always an argument. Promises,
windows, forecasts and plans are serialised by ``to_dict`` and ``from_dict``.

- A `ScheduledPromise` (promise.py) holds in each `Window` (window.py). `Forecast` (forecast.py, seasonal_profile.py,
  backtest.py) knows the traffic, `Supply` (supply.py) what one list can hold.
- `make_plan` (plan.py) looks at the windows of a moment (active_windows.py) and the traffic until their ends
  (traffic.py), and returns what to aim at until the next plan (targets.py; bank.py for shares), with a `PromiseStatus`
  (promise_status.py) of each promise.
- `check_promise` (feasibility.py) says whether a new promise fits beside the others.
"""

from fairsync.schedule.backtest import Backtest, backtest
from fairsync.schedule.feasibility import Feasibility, FeasibilityCheck, check_promise
from fairsync.schedule.forecast import Forecast, TrafficForecast
from fairsync.schedule.plan import WORST_CASE_TRAFFIC, Plan, make_plan
from fairsync.schedule.promise import ScheduledPromise, active_spans
from fairsync.schedule.promise_status import PromiseStatus
from fairsync.schedule.supply import Supply
from fairsync.schedule.window import Span, Window

__all__ = [
    "WORST_CASE_TRAFFIC",
    "Backtest",
    "Feasibility",
    "FeasibilityCheck",
    "Forecast",
    "Plan",
    "PromiseStatus",
    "ScheduledPromise",
    "Span",
    "Supply",
    "TrafficForecast",
    "Window",
    "active_spans",
    "backtest",
    "check_promise",
    "make_plan",
]
