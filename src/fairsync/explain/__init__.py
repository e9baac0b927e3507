"""Why the candidates of a request are there, and others are not, from what was seen when it was answered."""

from fairsync.explain.explanation import ExplainedCandidate, Explanation, StoredExplanation, WhyNot

__all__ = ["ExplainedCandidate", "Explanation", "StoredExplanation", "WhyNot"]
