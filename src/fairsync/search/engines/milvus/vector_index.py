"""The index of the vectors of a collection of Milvus: how it is made, and whether one that exists serves."""

from collections.abc import Mapping
from typing import Any

from fairsync.errors import InvalidInputError
from fairsync.search.engines.item_schema import check_metric

# What an index is made with, and which of those that exist serve.
_INDEXES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "exact": ({"index_type": "FLAT"}, ("FLAT",)),
    "hnsw": ({"index_type": "HNSW", "params": {"M": 16, "efConstruction": 200}}, ("HNSW", "AUTOINDEX")),
}


def index_params(index: str) -> dict[str, Any]:
    """Return the parameters of a new index, ``"exact"`` or ``"hnsw"``."""
    return {"metric_type": "IP", **_INDEXES[index][0]}


def check_index(held: Mapping[str, Any] | None, index: str, place: str) -> None:
    """Raise if the index of a collection, as Milvus describes it, is of another kind or metric; None for no index."""
    if held is None:
        raise InvalidInputError(f"{place} has no index of its vectors: make one with metric IP.")
    check_metric(held["metric_type"], "IP", place)
    if held["index_type"] not in _INDEXES[index][1]:
        other = " or index='hnsw'" if held["index_type"] in _INDEXES["hnsw"][1] else ""
        raise InvalidInputError(
            f"the index of {place} is {held['index_type']}, and index={index!r} needs {_INDEXES[index][1][0]}: make it"
            f" so{other}."
        )
