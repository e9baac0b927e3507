"""The plan: one linear program that spreads what promises miss over the requests to come, higher priorities first."""

from fairsync.plan.blockers import blockers
from fairsync.plan.give_way import GivenWay, give_way
from fairsync.plan.largest import largest_value
from fairsync.plan.priorities import ShortfallPlan, least_shortfall
from fairsync.plan.program import Demands, Program
from fairsync.policies.base import NO_CAP

__all__ = [
    "NO_CAP",
    "Demands",
    "GivenWay",
    "Program",
    "ShortfallPlan",
    "blockers",
    "give_way",
    "largest_value",
    "least_shortfall",
]
