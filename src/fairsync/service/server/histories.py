"""User vectors from histories of item ids, by a model."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.catalog.names import are_words, words_array
from fairsync.errors import InvalidInputError
from fairsync.ragged import PADDING
from fairsync.service.schema import LONGEST_HISTORY
from fairsync.service.server.problems import busy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairsync.catalog import Catalog
    from fairsync.catalog.groups import Label
    from fairsync.models import Model
    from fairsync.service.settings import Settings


# Latest items of a history that are used: no model looks further back, and all rows are padded to the longest.
_LATEST = 1_000
# Users whose vectors are computed at once. Other callers take their turn in between.
_BLOCK = 256
# Bodies of the largest size whose histories may wait, of one caller and of all: as lists they take several times as
# much memory.
_BODIES_OF_ONE, _BODIES_OF_ALL = 1, 4
# A word that is an id in a catalog whose ids are integers of 64 bits.
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,18}")


class Histories:
    """Computes user vectors from histories.

    Items that the model does not know are ignored, because catalogs change faster than models are trained. A user
    without a known item has a zero vector, and is answered as a cold one (:mod:`fairsync.cold_start.cold_start`).

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
            [row for item in one[-LONGEST_HISTORY:] if (row := self._row_of.get(str(item))) is not None][-_LATEST:]
            for one in histories
        ]
        rows = np.full((len(known), max(map(len, known), default=0) or 1), PADDING, dtype=np.int64)
        for user, items in enumerate(known):
            rows[user, : len(items)] = items
        vectors = self._model.user_vectors(rows)
        empty = [user for user, items in enumerate(known) if not items]
        if empty:
            vectors = vectors.copy()
            vectors[empty] = 0.0
        return vectors


class HistoryEncoder:
    """Computes user vectors from histories in a thread of its own. Must be used from one event loop.

    A caller with many histories waits for itself: of each caller one call is encoded at a time, in blocks, and blocks
    of several callers take turns.

    Parameters
    ----------
    histories
        Computes the vectors.
    max_body_bytes
        Largest body. Calls are refused (503) while the bodies that wait have several times that size.
    """

    def __init__(self, histories: Histories, max_body_bytes: int) -> None:
        self._histories, self._max_body_bytes = histories, max_body_bytes
        self._thread = ThreadPoolExecutor(1, "histories")
        self._waiting: Counter[str] = Counter()
        self._locks: dict[str, asyncio.Lock] = {}

    async def vectors_and_items(
        self, histories: list[list[Label]], caller: str, body_bytes: int, catalog: Catalog | None
    ) -> tuple[NDArray[np.float32], list[NDArray[Any]]]:
        """Return the vectors of users, and the items of their histories that a catalog holds; none without a catalog.

        It empties the list of histories, to free its memory; see also :meth:`Histories.vectors`.

        Parameters
        ----------
        histories
            The histories of users, at least one.
        caller
            Name of the caller.
        body_bytes
            Size of the body that had the histories.
        catalog
            The catalog.
        """
        own, all_of_them = self._waiting[caller], self._waiting.total()
        if (own and own + body_bytes > _BODIES_OF_ONE * self._max_body_bytes) or (
            all_of_them and all_of_them + body_bytes > _BODIES_OF_ALL * self._max_body_bytes
        ):
            raise busy("overloaded", "Too many histories are waiting already.")
        self._waiting[caller] += body_bytes
        loop, blocks = asyncio.get_running_loop(), []
        items: list[NDArray[Any]] = []
        try:
            async with self._locks.setdefault(caller, asyncio.Lock()):
                for start in range(0, len(histories), _BLOCK):
                    block = histories[start : start + _BLOCK]
                    blocks.append(await loop.run_in_executor(self._thread, self._histories.vectors, block))
                    if catalog is not None:
                        items += await loop.run_in_executor(self._thread, known_items, block, catalog)
        finally:
            self._waiting[caller] -= body_bytes
            histories.clear()
        return np.concatenate(blocks), items

    def close(self) -> None:
        """End the thread; calls that wait fail."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def known_items(histories: Sequence[Sequence[Label]], catalog: Catalog) -> list[NDArray[Any]]:
    """Return the distinct ids of a catalog that each history names. As for a model, "7" and 7 are the same.

    Examples
    --------
    >>> from fairsync.catalog import Catalog
    >>> catalog = Catalog(np.eye(2), ["a", "b"], ids=[7, 8])
    >>> [ids.tolist() for ids in known_items([["7", 9, "x"], [8, 8], []], catalog)]
    [[7], [8], []]
    """
    words = are_words(catalog.ids[:1])
    found = []
    for history in histories:
        names = [str(item) for item in history[-LONGEST_HISTORY:]]
        if words:
            ids = words_array(names) if names else np.empty(0, dtype="U1")
        else:
            ids = np.array([int(name) for name in names if _WHOLE_NUMBER.fullmatch(name)], dtype=np.int64)
        if catalog.weights is not None:  # the engine leaves out what it has of them
            found.append(np.unique(ids))
            continue
        rows = catalog.rows_of(ids)
        found.append(catalog.ids_of(np.unique(rows[rows >= 0])))
    return found


def load_histories(settings: Settings, dim: int) -> HistoryEncoder | None:
    """Load the model that the settings name, if any. Loads torch only if the model needs it."""
    if settings.model.path is None:
        return None
    from fairsync.models import load_model

    return HistoryEncoder(Histories(load_model(settings.model.path), dim), settings.http.max_body_bytes)
