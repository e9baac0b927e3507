"""FairSync: guaranteed exposure for recommendation retrieval.

Every group of items gets at least its floor of exposures over a horizon of requests; each request is
answered on the spot, and little relevance is given up.

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

from importlib.metadata import version

from fairsync.candidates import Candidates
from fairsync.catalog import Catalog
from fairsync.coordination.coordinator import Coordinator
from fairsync.coordination.front_end import FrontEnd
from fairsync.errors import FairSyncError, InfeasibleFloorsError, InvalidInputError, UnknownGroupError
from fairsync.hindsight import Hindsight, hindsight
from fairsync.report import Report
from fairsync.retriever import FairRetriever

__version__ = version("fairsync")

__all__ = [
    "Candidates",
    "Catalog",
    "Coordinator",
    "FairRetriever",
    "FairSyncError",
    "FrontEnd",
    "Hindsight",
    "InfeasibleFloorsError",
    "InvalidInputError",
    "Report",
    "UnknownGroupError",
    "__version__",
    "hindsight",
]
