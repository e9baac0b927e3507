"""Errors of the connection to Milvus say what to do."""

import socket
import sys

import pytest

from contract.test_indexes import random_case
from fairsync.errors import BackendUnavailableError, InvalidInputError, MissingPackageError
from fairsync.search.engines.milvus import MilvusIndex


@pytest.fixture
def unused() -> int:
    """Return a port without a listener."""
    pytest.importorskip("pymilvus")
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def test_a_dead_server_is_reported_clearly_and_once(unused: int, capfd: pytest.CaptureFixture[str]) -> None:
    catalog, _ = random_case(25)
    with pytest.raises(BackendUnavailableError, match=f"127.0.0.1:{unused} does not answer.*timeout="):
        MilvusIndex(catalog, f"http://127.0.0.1:{unused}", timeout=0.3)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("uri", ["nonsense", "localhost:19530", "/no/such/folder/items.db"])
def test_an_address_without_meaning_is_refused_at_once(uri: str) -> None:
    pytest.importorskip("pymilvus")
    with pytest.raises(InvalidInputError, match=r"refuses.*url="):
        MilvusIndex(random_case(28)[0], uri, timeout=600)


def test_without_the_client_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymilvus", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'fairsync\[milvus\]'"):
        MilvusIndex(random_case(26)[0])
