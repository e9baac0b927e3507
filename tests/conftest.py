"""What holds for all tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    import pytest

# On a busy machine, drawing an example can take long; that says nothing about the code.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# Tests of these files start something large, a cluster, a server or a browser, of which there should be one at a time.
_TOGETHER = {
    "ray": ("test_ray.py", "test_ray_faults.py", "test_cluster.py"),
    "milvus": ("test_milvus_server.py",),
    "browser": (
        "test_accessibility.py",
        "test_pace_chart.py",
        "test_promise_editor.py",
        "test_promise_list.py",
        "test_service_health.py",
        "test_static_files.py",
    ),
    "replicas": ("test_replicas.py",),
}
_GROUP_OF = {file: group for group, files in _TOGETHER.items() for file in files}


class _Together(LoadScopeScheduling):  # type: ignore[misc]
    """Hands tests of one group to one worker, and all others one by one to whoever is free."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::")[0].rsplit("/", 1)[-1]
        return _GROUP_OF.get(file, nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Together:
    """Choose who runs what."""
    return _Together(config, log)
