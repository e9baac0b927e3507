"""What users of an arm got, over several processes that share its ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairsync.ledger import SqlLedger
from fairsync.service.arms.arm_sums import SavedSums

if TYPE_CHECKING:
    from postgres_server import PostgresServer


def test_every_process_is_counted_once_whatever_they_save_and_in_whatever_order(postgres: PostgresServer) -> None:
    url = postgres.schema("arm_sums")
    with SqlLedger(url, 1, shared=True) as first, SqlLedger(url, 1, shared=True) as second:
        one, other = SavedSums(first, 3), SavedSums(second, 3)
        for times in range(1, 4):
            one.own.add(7, 0, requests=2, relevance=1.0, exposures=4)
            other.own.add(8, 1, requests=1, relevance=0.5, exposures=2)
            one.save()
            other.save()
            for process in (one, other):
                assert process.total().total("requests").tolist() == [2.0 * times, 1.0 * times, 0.0]
        after_a_restart = SavedSums(first, 3)
        after_a_restart.own.add(8, 2, requests=5, relevance=1.0, exposures=1)
        after_a_restart.save()
        assert other.total().total("requests").tolist() == [6.0, 3.0, 5.0]
        assert other.total().cells("exposures", [7, 8]).tolist() == [[12.0, 0.0, 0.0], [0.0, 6.0, 1.0]]


def test_a_name_that_another_process_has_overwritten_is_listed_again(postgres: PostgresServer) -> None:
    with SqlLedger(postgres.schema("arm_names"), 1, shared=True) as ledger:
        one, other = SavedSums(ledger, 1), SavedSums(ledger, 1)
        one.own.add(0, 0, requests=1)
        other.own.add(0, 0, requests=1)
        one.save()
        other.save()
        ledger.save("arm days", b"[]")  # as if a third one had read the list before
        assert one.total().total("requests").tolist() == [1.0]
        other.save()
        assert one.total().total("requests").tolist() == [2.0]
