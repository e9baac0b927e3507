"""FairSync: guaranteed exposure for recommendation retrieval.

Promises about selections of items, at least or at most a number of exposures, hold when a horizon of requests ends.
Each request is answered on the spot, and little relevance is given up.

Examples
--------
A catalog where most items belong to one group. Every group is promised 50 exposures in 200 requests.

>>> import fairsync as fs
>>> from fairsync.data import synthetic
>>> data = synthetic(n_items=2_000, n_groups=8, n_users=200, dim=16, seed=1)
>>> catalog = fs.Catalog(data.embeddings, data.groups)
>>> retriever = fs.FairRetriever(catalog, k=10, floors=50, horizon=200).calibrate(data.past_users)
>>> found = retriever.retrieve(data.users)
>>> found.ids.shape
(200, 10)
>>> report = retriever.report()
>>> report.esp, min(report.exposures.values()) >= 50
(1.0, True)

What the floors must cost at least, had all requests been known beforehand:

>>> best = fs.hindsight(catalog, data.users, k=10, floors=50)
>>> retriever.report(best).cost >= best.cost > 0
True
"""

from importlib import import_module
from typing import TYPE_CHECKING

from fairsync.candidates import Candidates
from fairsync.catalog import Catalog
from fairsync.coordination.coordinator import Coordinator
from fairsync.coordination.front_end import FrontEnd
from fairsync.errors import (
    BackendUnavailableError,
    CallCancelledError,
    ExpiredRequestError,
    FairSyncError,
    InfeasibleFloorsError,
    InvalidInputError,
    LeaseBusyError,
    LostLeaseError,
    MissingPackageError,
    MissingTorchError,
    RepeatedRequestError,
    TooManyPreviewsError,
    UndecidedPromisesError,
    UnknownGroupError,
    UnknownLeaseError,
    UnknownPromiseError,
    UnknownRequestError,
    UnusableLedgerError,
    UnwritablePathError,
)
from fairsync.explain import ExplainedCandidate, Explanation, WhyNot
from fairsync.hindsight import Hindsight, hindsight
from fairsync.ledger import MemoryLedger, Retention, SqlLedger
from fairsync.promises import Promise, each
from fairsync.report import Report
from fairsync.report.cost_curve import CostCurve, cost_curve
from fairsync.retriever import FairRetriever
from fairsync.search import ExactIndex, HnswIndex, IvfIndex, OneHotIndex, ShardedIndex
from fairsync.search.engines import make_engine
from fairsync.search.engines.hosted_catalog import HostedCatalog

if TYPE_CHECKING:
    from fairsync.catalog.files import open_catalog as open_catalog
    from fairsync.catalog.files import save_catalog as save_catalog
    from fairsync.coordination.ray import RayCoordinator as RayCoordinator
    from fairsync.search.engines.milvus import MilvusIndex as MilvusIndex
    from fairsync.search.engines.pgvector import PgvectorIndex as PgvectorIndex
    from fairsync.search.engines.qdrant import QdrantIndex as QdrantIndex
    from fairsync.search.ray import RayIndex as RayIndex
    from fairsync.service.client import AccessError as AccessError
    from fairsync.service.client import AsyncClient as AsyncClient
    from fairsync.service.client import Client as Client
    from fairsync.service.client import RefusedError as RefusedError

    __version__: str

__all__ = [
    "BackendUnavailableError",
    "CallCancelledError",
    "Candidates",
    "Catalog",
    "Coordinator",
    "CostCurve",
    "ExactIndex",
    "ExpiredRequestError",
    "ExplainedCandidate",
    "Explanation",
    "FairRetriever",
    "FairSyncError",
    "FrontEnd",
    "Hindsight",
    "HnswIndex",
    "HostedCatalog",
    "InfeasibleFloorsError",
    "InvalidInputError",
    "IvfIndex",
    "LeaseBusyError",
    "LostLeaseError",
    "MemoryLedger",
    "MissingPackageError",
    "MissingTorchError",
    "OneHotIndex",
    "Promise",
    "RepeatedRequestError",
    "Report",
    "Retention",
    "ShardedIndex",
    "SqlLedger",
    "TooManyPreviewsError",
    "UndecidedPromisesError",
    "UnknownGroupError",
    "UnknownLeaseError",
    "UnknownPromiseError",
    "UnknownRequestError",
    "UnusableLedgerError",
    "UnwritablePathError",
    "WhyNot",
    "__version__",
    "cost_curve",
    "each",
    "hindsight",
    "make_engine",
]

# Names that are imported on first use: the module of each, and the extra that installs what it needs. They are not in
# __all__, so that `from fairsync import *` works without it.
_LAZY = {
    "AccessError": ("fairsync.service.client", "client"),
    "AsyncClient": ("fairsync.service.client", "client"),
    "Client": ("fairsync.service.client", "client"),
    "MilvusIndex": ("fairsync.search.engines.milvus", "milvus"),
    "PgvectorIndex": ("fairsync.search.engines.pgvector", "postgres"),
    "QdrantIndex": ("fairsync.search.engines.qdrant", "qdrant"),
    "RayCoordinator": ("fairsync.coordination.ray", "ray"),
    "RayIndex": ("fairsync.search.ray", "ray"),
    "RefusedError": ("fairsync.service.client", "client"),
    "open_catalog": ("fairsync.catalog.files", "data"),
    "save_catalog": ("fairsync.catalog.files", "data"),
}


if not TYPE_CHECKING:  # type checkers know the names from the imports above, and should refuse any other

    def __getattr__(name: str) -> object:
        if name == "__version__":
            from importlib.metadata import version  # here, because it takes a tenth of the time to import all of this

            return version("fairsync")
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, extra = _LAZY[name]
        try:
            value = getattr(import_module(module), name)
        except ImportError as error:
            package = error.name or "an optional package"
            raise MissingPackageError(
                f"fairsync.{name} needs {package}: pip install 'fairsync[{extra}]'.", name=error.name
            ) from error
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, "__version__"})
