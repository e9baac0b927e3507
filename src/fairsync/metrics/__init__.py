"""Metrics of candidate lists: accuracy, distribution of exposure, and diversity. Needs numpy only."""

from fairsync.metrics.accuracy import Accuracy, accuracy_of_each, hit_rate, ndcg, ndcg_of_hits, recall
from fairsync.metrics.diversity import category_diversity
from fairsync.metrics.exposure import count_exposures, coverage, entropy, esp, gini, smallest_share

__all__ = [
    "Accuracy",
    "accuracy_of_each",
    "category_diversity",
    "count_exposures",
    "coverage",
    "entropy",
    "esp",
    "gini",
    "hit_rate",
    "ndcg",
    "ndcg_of_hits",
    "recall",
    "smallest_share",
]
