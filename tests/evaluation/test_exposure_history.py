"""Recording exposures over time does not change the candidates."""

import pytest

from evaluation.visits import shop
from fairsync import FairRetriever
from fairsync.evaluation.exposure_history import record_exposures
from fairsync.evaluation.replayed_traffic import replay_traffic
from fairsync.metrics import recall


@pytest.mark.parametrize("batch_size", [1, 16, 500])
def test_recording_changes_no_candidates(batch_size: int) -> None:
    traffic = replay_traffic(shop(), 10_000)
    n = len(traffic.users)

    def retriever() -> FairRetriever:
        return FairRetriever(traffic.catalog, k=4, floors=30, horizon=n, batch_size=batch_size)

    reports = []
    history = record_exposures(retriever(), traffic, lambda seen, report: reports.append((seen, report.requests)))
    straight = retriever()
    lists = straight.retrieve(traffic.users)
    assert history.exposures[-1].tolist() == list(straight.report().exposures.values())
    assert (history.seen[0], history.seen[-1], history.exposures[0].sum()) == (0, n, 0)
    assert history.exposures.sum(axis=1).tolist() == (4 * history.seen).tolist()
    assert all(seen == requests for seen, requests in reports)
    targets = [traffic.catalog.ids_of(one).tolist() for one in traffic.targets]
    assert history.recall == pytest.approx(recall(lists.ids, targets))
