"""Search engines that hold the items: Postgres with pgvector, Qdrant. They rank; ties and prices are settled here."""

from fairsync.search.engines.engine import Abilities, Engine
from fairsync.search.engines.engine_index import EngineIndex

__all__ = ["Abilities", "Engine", "EngineIndex"]
