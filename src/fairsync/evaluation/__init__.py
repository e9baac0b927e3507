"""Evaluation of retrieval: accuracy and the distribution of exposure, for a trained model or for any vectors."""

from fairsync.evaluation.evaluate import Evaluation, PolicyResult, evaluate
from fairsync.evaluation.list_metrics import ListMetrics, measure_lists
from fairsync.evaluation.promise_results import PromiseResult, measure_promises
from fairsync.evaluation.sources import EvaluationSource, from_files, from_model

__all__ = [
    "Evaluation",
    "EvaluationSource",
    "ListMetrics",
    "PolicyResult",
    "PromiseResult",
    "evaluate",
    "from_files",
    "from_model",
    "measure_lists",
    "measure_promises",
]
