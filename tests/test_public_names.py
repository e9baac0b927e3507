"""What users need comes from the package itself, and importing it loads nothing that is optional or heavy."""

import importlib
import pkgutil
import subprocess
import sys
from contextlib import suppress

import pytest

import fairsync
from fairsync.errors import FairSyncError, MissingPackageError

OPTIONAL = (
    "AccessError",
    "AsyncClient",
    "Client",
    "MilvusIndex",
    "PgvectorIndex",
    "QdrantIndex",
    "RayCoordinator",
    "RayIndex",
    "RefusedError",
    "open_catalog",
    "save_catalog",
)
# What takes long to import, and is imported where it is used.
HEAVY = (
    "faiss", "httpx", "importlib.metadata", "matplotlib", "pandas", "polars", "psycopg", "pymilvus", "qdrant_client",
    "qdrant_edge", "ray", "rich", "scipy", "starlette", "torch", "typer",
)  # fmt: skip


def all_subclasses(one: type[FairSyncError]) -> set[type[FairSyncError]]:
    return {one}.union(*map(all_subclasses, one.__subclasses__()))


def test_every_name_resolves() -> None:
    for name in (*fairsync.__all__, *OPTIONAL):
        assert getattr(fairsync, name) is not None
        assert name in dir(fairsync)
    assert list(fairsync.__all__) == sorted(fairsync.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Retriever'"):
        fairsync.Retriever  # type: ignore[attr-defined]  # noqa: B018


def test_every_error_is_exported() -> None:
    for module in pkgutil.walk_packages(fairsync.__path__, "fairsync."):
        if not module.name.endswith("__main__"):
            with suppress(ImportError):  # an extra that is not installed
                importlib.import_module(module.name)
    public = {error for error in all_subclasses(FairSyncError) if error.__module__.startswith("fairsync.")}
    assert {error for error in public if not error.__name__.startswith("_")} == {
        error for error in public if getattr(fairsync, error.__name__, None) is error
    }


def test_importing_it_loads_nothing_heavy() -> None:
    script = f"import sys, fairsync; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(fairsync, "RayIndex", raising=False)
    for name in [name for name in sys.modules if name.startswith("fairsync.search.ray")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'fairsync\[ray\]'"):
        fairsync.RayIndex  # noqa: B018
