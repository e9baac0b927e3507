"""What users of an arm got, over several processes that share its ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairsync.ledger import SqlLedger
from fairsync.service.arms.saved_sums import SavedSums

if TYPE_CHECKING:
    from postgres_server import PostgresServer


def test_every_process_is_counted_once_whatever_they_save_and_in_whatever_order(postgres: PostgresServer) -> None:
    url = postgres.schema("arm_sums")
    with SqlLedger(url, 1, shared=True) as first, SqlLedger(url, 1, shared=True) as second:
        one, other = SavedSums(first, 3), SavedSums(second, 3)
        for times in range(1, 4):
            one.own.add(0, 2, 1.0, 4.0)
            other.own.add(1, 1, 0.5, 2.0)
            one.save()
            other.save()
            for process in (one, other):
                assert process.total().requests.tolist() == [2.0 * times, 1.0 * times, 0.0]
        after_a_restart = SavedSums(first, 3)
        after_a_restart.own.add(2, 5, 1.0, 1.0)
        after_a_restart.save()
        assert other.total().requests.tolist() == [6.0, 3.0, 5.0]
        assert other.total().sums.tolist() == [[3.0, 1.5, 1.0], [12.0, 6.0, 1.0]]


def test_a_name_that_another_process_has_overwritten_is_listed_again(postgres: PostgresServer) -> None:
    with SqlLedger(postgres.schema("arm_names"), 1, shared=True) as ledger:
        one, other = SavedSums(ledger, 1), SavedSums(ledger, 1)
        one.own.add(0, 1, 0.0, 0.0)
        other.own.add(0, 1, 0.0, 0.0)
        one.save()
        other.save()
        ledger.save("arm sums", b"[]")  # as if a third one had read the list before
        assert one.total().requests.tolist() == [1.0]
        other.save()
        assert one.total().requests.tolist() == [2.0]
