"""Make the index that the settings name, or describe it for ``fairsync check``."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from fairsync.errors import InvalidInputError, MissingPackageError
from fairsync.search import ExactIndex, ShardedIndex, make_index
from fairsync.search.engines import ENGINES, make_engine, make_engine_index
from fairsync.search.engines.hosted_catalog import HostedCatalog
from fairsync.search.engines.inspection import describe_abilities, inspect_engine
from fairsync.service.settings import SEARCH_KEYS
from fairsync.text import count

if TYPE_CHECKING:
    from fairsync.catalog import Catalog
    from fairsync.search import Index
    from fairsync.search.engines import Engine
    from fairsync.service.settings import SearchSettings

# Keys that say what to do with the items, not how to ask the engine.
_OF_THE_SERVICE = ("upload", "attributes", "filters")


def open_engine(settings: SearchSettings) -> Engine:
    """Return the engine that holds the items, before anything is asked of it."""
    if settings.engine not in ENGINES:
        known = ", ".join(ENGINES)
        raise InvalidInputError(f"{settings.engine} cannot hold the items alone, {known} can: name a [catalog].")
    return make_engine(settings.engine, **_given(settings))


def make_search(settings: SearchSettings, catalog: Catalog) -> Index:
    """Return the index that the settings name."""
    if settings.engine in ENGINES:
        return make_engine_index(settings.engine, catalog, upload=settings.upload, **_given(settings))
    if settings.ray is not None:
        return _ray_index(settings, catalog)
    if settings.shards > 1:
        return ShardedIndex(catalog, settings.shards, settings.index)
    if settings.index == "exact":
        return ExactIndex(catalog, settings.threads)
    return make_index(settings.index, catalog)


def describe_search(settings: SearchSettings, catalog: Catalog | None) -> str:
    """Return what searches, in words; refuse an engine that the service could not use. It writes nothing.

    Parameters
    ----------
    settings
        The settings.
    catalog
        The items, with which those of an engine are compared; None if they cannot be read.
    """
    if isinstance(catalog, HostedCatalog):
        return f"{catalog.engine.place}, {describe_abilities(catalog.engine, catalog)}"
    if settings.engine in ENGINES:
        engine = open_engine(settings)
        if catalog is None:
            return engine.place
        return inspect_engine(engine, catalog, upload=settings.upload)
    if settings.ray is not None:
        return f"Ray shards {settings.ray!r}"
    return f"{settings.index}, {count(settings.shards, 'shard')}"


def _given(settings: SearchSettings) -> dict[str, Any]:
    """Return the arguments of an engine."""
    return {key: getattr(settings, key) for key in SEARCH_KEYS[settings.engine] if key not in _OF_THE_SERVICE}


def _ray_index(settings: SearchSettings, catalog: Catalog) -> Index:
    try:
        import ray
    except ImportError:
        raise MissingPackageError("search.ray is set, but Ray is not installed: pip install 'fairsync[ray]'.") from None
    from fairsync.search.ray import RayIndex

    if not ray.is_initialized():
        try:
            ray.init(address=settings.ray_address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise InvalidInputError(
                f"there is no Ray cluster at {settings.ray_address!r} ({error}): check search.ray_address."
            ) from error
    return RayIndex.attach(str(settings.ray), catalog)
