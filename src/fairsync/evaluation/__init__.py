"""How good retrieval is, and how it shares out exposure: of a trained model, or of anybody's vectors."""

from fairsync.evaluation.evaluate import Evaluation, Result, evaluate
from fairsync.evaluation.figures import Figures, measure
from fairsync.evaluation.sources import Source, from_files, from_model

__all__ = ["Evaluation", "Figures", "Result", "Source", "evaluate", "from_files", "from_model", "measure"]
