"""User vectors from histories of item ids, by a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairsync.errors import InvalidInputError
from fairsync.ragged import PADDING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairsync.catalog.groups import Label
    from fairsync.models import Model
    from fairsync.service.settings import Settings


# Latest items of a history that are used: no model looks further back, and all rows are padded to the longest.
_LATEST = 1_000


class Histories:
    """Computes user vectors from histories.

    Items that the model does not know are ignored, because catalogs change faster than models are trained.

    Parameters
    ----------
    model
        A model that was trained with the items of the catalog.
    dim
        Dimension of the catalog's embeddings.
    """

    def __init__(self, model: Model, dim: int) -> None:
        if model.dim != dim:
            raise InvalidInputError(
                f"the model makes vectors of {model.dim} dimensions, but the items have {dim}: use the item vectors"
                " of this model as the catalog."
            )
        self._model = model
        self._row_of = {str(item): row for row, item in enumerate(model.item_ids.tolist())}

    def vectors(self, histories: Sequence[Sequence[Label]]) -> NDArray[np.float32]:
        """Return the vectors of users: (n, d), or (n, interests, d) if the model has several interests."""
        known = [
            [row for item in one if (row := self._row_of.get(str(item))) is not None][-_LATEST:] for one in histories
        ]
        rows = np.full((len(known), max(map(len, known), default=0)), PADDING, dtype=np.int64)
        for user, items in enumerate(known):
            rows[user, : len(items)] = items
        return self._model.user_vectors(rows)


def load_histories(settings: Settings, dim: int) -> Histories | None:
    """Load the model that the settings name, if any. Loads torch only if the model needs it."""
    if settings.model.path is None:
        return None
    from fairsync.models import load_model

    return Histories(load_model(settings.model.path), dim)
