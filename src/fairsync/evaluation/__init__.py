"""How good retrieval is, and how it shares out exposure: of a trained model, or of anybody's vectors."""

from fairsync.evaluation.evaluate import Evaluation, PolicyResult, evaluate
from fairsync.evaluation.list_metrics import ListMetrics, measure
from fairsync.evaluation.sources import EvaluationSource, from_files, from_model

__all__ = [
    "Evaluation",
    "EvaluationSource",
    "ListMetrics",
    "PolicyResult",
    "evaluate",
    "from_files",
    "from_model",
    "measure",
]
