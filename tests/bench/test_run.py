"""Measurements by real processes on small catalogs."""

import psycopg
import pytest

from fairsync.bench import MeasurementPoint, run
from fairsync.errors import FairSyncError
from postgres_server import PostgresServer


def test_measurements_belong_to_their_point() -> None:
    small, large = (
        MeasurementPoint("exact", items=2_000, groups=5, k=10),
        MeasurementPoint("exact", items=40_000, groups=5, k=10),
    )
    sharded = MeasurementPoint("exact", items=2_000, groups=5, k=10, shards=3)
    seen: list[str] = []
    figures = run({"items": [small, large], "shards": [small, sharded]}, watch=lambda what, point: seen.append(what))
    assert seen == ["items", "items", "shards", "shards"]
    assert [one.embeddings_bytes for one in figures] == [4 * 64 * n for n in (2_000, 40_000, 2_000, 2_000)]
    assert all(one.recall == 1 for one in figures)  # exact is exact, in shards too
    assert figures[0].ms_batch == figures[2].ms_batch  # measured once
    assert figures[1].memory_bytes is None or figures[1].memory_bytes > figures[1].embeddings_bytes


def test_the_error_names_the_point_that_failed() -> None:
    with pytest.raises(FairSyncError, match="nonsense"):
        run({"items": [MeasurementPoint("nonsense", items=100, groups=2, k=5)]})


def test_engines_are_measured_and_what_they_held_is_dropped(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres.execute("CREATE EXTENSION IF NOT EXISTS vector")
    monkeypatch.setenv("FAIRSYNC_SEARCH_URL", postgres.url)
    (one,) = run({"items": [MeasurementPoint("pgvector", items=500, groups=5, k=10)]})
    assert one.recall == 1
    assert one.times_exact_single > 0
    with psycopg.connect(postgres.url) as connection:
        left = connection.execute("SELECT relname FROM pg_class WHERE relname LIKE 'fairsync_bench%'").fetchall()
    assert left == []


def test_an_embedded_engine_needs_no_address_and_a_server_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FAIRSYNC_SEARCH_URL", raising=False)
    (one,) = run({"items": [MeasurementPoint("qdrant", items=500, groups=5, k=10)]})
    assert one.recall == 1
    with pytest.raises(FairSyncError, match="FAIRSYNC_SEARCH_URL=postgresql"):
        run({"items": [MeasurementPoint("pgvector", items=500, groups=5, k=10)]})
    assert MeasurementPoint("qdrant", shards=2).left_out == "an engine has shards of its own"


def test_ray_is_measured_on_a_cluster_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.delenv("FAIRSYNC_SEARCH_URL", raising=False)
    (one,) = run({"items": [MeasurementPoint("ray", items=500, groups=5, k=10)]})
    assert one.recall == 1
    assert one.times_exact_single > 0
