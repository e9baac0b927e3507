"""Promises per time: windows, a forecast of traffic, and plans that turn both into floors and horizons.

Pure arithmetic: nothing here reads a clock or a file. The present moment is always an argument, and everything can be
written down with ``to_dict`` and read back with ``from_dict``.
"""

from fairsync.windows.backtest import Backtest, backtest
from fairsync.windows.feasibility import Verdict, check_promise
from fairsync.windows.forecast import Forecast, Traffic
from fairsync.windows.outlook import Outlook
from fairsync.windows.plan import SLUMP, Plan, make_plan
from fairsync.windows.promise import Promise
from fairsync.windows.window import Span, Window

__all__ = [
    "SLUMP",
    "Backtest",
    "Forecast",
    "Outlook",
    "Plan",
    "Promise",
    "Span",
    "Traffic",
    "Verdict",
    "Window",
    "backtest",
    "check_promise",
    "make_plan",
]
