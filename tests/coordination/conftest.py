"""A Postgres server for all tests of coordination, and coordinators that share a ledger in it."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from coordination.cutting_proxy import CuttingProxy
from fairsync.catalog import Catalog
from fairsync.coordination.coordinator import Coordinator
from postgres_server import PostgresServer

TWO = Catalog(np.eye(2), ["a", "b"])


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as running:
        yield running


@pytest.fixture
def url(server: PostgresServer) -> str:
    """The URL of a ledger of this test's own."""
    return server.schema(f"ledger_{secrets.token_hex(8)}")


@pytest.fixture
def start(url: str) -> Iterator[Callable[..., Coordinator]]:
    """Start coordinators that share the ledger of this test."""
    with ExitStack() as stack:

        def started(catalog: Any = TWO, **settings: Any) -> Coordinator:
            return stack.enter_context(Coordinator(catalog, ledger=settings.pop("ledger", url), **settings))

        yield started


@pytest.fixture
def proxy(server: PostgresServer) -> Iterator[CuttingProxy]:
    """A way to the server that can be cut."""
    with CuttingProxy(server.port) as running:
        yield running
