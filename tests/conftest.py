"""What holds for all tests."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from effort import FRESH
from postgres_server import PostgresServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.milvus_server import MilvusServer

# Clients of Milvus and Ray have threads of gRPC. Its support of forks starts them again in a forked process, whose
# files subprocess closes, so that the process may end before it becomes the program.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

# On a busy machine, drawing an example can take long; that says nothing about the code. Examples are the same in every
# run, so that a change fails for what it changes; FAIRSYNC_FRESH=1 or FAIRSYNC_HOURS draws others.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=not FRESH)
settings.load_profile("patient")

# Tests of these files start something large, a cluster, a server or a browser, of which there should be one at a time.
_TOGETHER = {
    "ray": ("ray/test_index.py", "ray/test_failover.py", "test_ray.py", "test_cluster.py"),
    "milvus": (
        "test_milvus.py",
        "test_hosted_milvus.py",
        "test_switch.py",
        "test_engine_checks.py",
        "test_engine_faults.py",
        "test_hosted_in_milvus.py",
    ),
    "browser": (
        "test_accessibility.py",
        "test_audit_panel.py",
        "test_pace_chart.py",
        "test_promise_editor.py",
        "test_promise_list.py",
        "test_service_health.py",
        "test_static_files.py",
    ),
    "replicas": ("test_replicas.py",),
}


class _Together(LoadScopeScheduling):  # type: ignore[misc]
    """Runs the tests of one group on one worker, and gives each other test to the next free worker."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::")[0]
        return next((group for group, files in _TOGETHER.items() if file.endswith(files)), nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Together:
    """Choose who runs what."""
    return _Together(config, log)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A Postgres server for all tests of a process; each takes a schema of its own."""
    with PostgresServer() as running:
        yield running


@pytest.fixture(scope="session")
def milvus_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MilvusServer]:
    """A Milvus server for all tests of a process; each takes collections of its own. It is large, and starts slowly."""
    pytest.importorskip("pymilvus")
    pytest.importorskip("milvus")
    from benchmarks.milvus_server import MilvusServer

    running = MilvusServer(tmp_path_factory.mktemp("milvus"))
    try:
        running.start()
        yield running
    finally:
        running.kill()
