"""What does not fit in an engine is said by `fairsync check`, with the remedy, and a service does not start."""

from __future__ import annotations

import json
import threading
from contextlib import ExitStack
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from fairsync.errors import FairSyncError
from fairsync.service.check import check
from fairsync.service.run import make_promise_service
from fairsync.service.search_settings import open_engine
from fairsync.service.settings import load_settings
from service.config_file import configured

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from postgres_server import PostgresServer

    Case = Callable[["Place"], str]

_numbers = count()
COLUMNS = 'id bigint PRIMARY KEY, embedding vector(8), "group" text'


class Place:
    """Where a case makes what does not fit."""

    def __init__(self, folder: Path, request: pytest.FixtureRequest, stack: ExitStack) -> None:
        self.folder, self._request, self.stack = folder, request, stack

    @property
    def postgres(self) -> PostgresServer:
        server: PostgresServer = self._request.getfixturevalue("postgres")
        server.execute("CREATE EXTENSION IF NOT EXISTS vector")
        return server


@pytest.fixture
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    with ExitStack() as stack:
        yield Place(tmp_path, request, stack)


def in_postgres(place: Place, columns: str = COLUMNS, then: str = "", index: str = "exact") -> str:
    """Make a table of these columns."""
    table = f"checked_{next(_numbers)}"
    place.postgres.execute(f"CREATE TABLE {table} ({columns})")
    if then:
        place.postgres.execute(then.format(table))
    return f'engine = "pgvector"\nurl = "{place.postgres.url}"\ntable = "{table}"\nindex = "{index}"'


def without_rights(place: Place) -> str:
    """Make a table that the user may not read."""
    role = f"stranger_{next(_numbers)}"
    place.postgres.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'")
    url = f"postgresql://{role}:x@127.0.0.1:{place.postgres.port}/postgres"
    return in_postgres(place).replace(place.postgres.url, url)


def without_pgvector(place: Place) -> str:
    """Make a database without the extension."""
    name = f"bare_{next(_numbers)}"
    place.postgres.execute(f"CREATE DATABASE {name}")
    return f'engine = "pgvector"\nurl = "{place.postgres.url.removesuffix("postgres")}{name}"'


def in_folder(place: Place, dim: int = 8, distance: str = "Dot") -> str:
    """Make a folder of Qdrant's engine with one point."""
    edge = pytest.importorskip("qdrant_edge")
    params = edge.EdgeVectorParams(size=dim, distance=getattr(edge.Distance, distance))
    (place.folder / "vectors" / "items").mkdir(parents=True)
    shard = edge.EdgeShard.create(str(place.folder / "vectors" / "items"), edge.EdgeConfig(vectors=params))
    shard.update(edge.UpdateOperation.upsert_points([edge.Point(1, [2.0] * dim, {"group": "toys"})]))
    shard.flush()
    shard.close()
    return f'engine = "qdrant"\nurl = "{place.folder}/vectors"'


class Stub(BaseHTTPRequestHandler):
    """Answers as a Qdrant server would: there is none to be had here."""

    def __init__(self, status: int, body: dict[str, Any], *given: Any) -> None:
        self._status, self._answer = status, json.dumps(body).encode()
        super().__init__(*given)

    def do_GET(self) -> None:
        self.send_response(self._status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(self._answer)))
        self.end_headers()
        self.wfile.write(self._answer)

    def log_message(self, *_: object) -> None:
        pass


def on_server(place: Place, status: int, body: dict[str, Any]) -> str:
    """Start a Qdrant that always gives the same answer."""
    pytest.importorskip("qdrant_client")
    server = place.stack.enter_context(HTTPServer(("127.0.0.1", 0), partial(Stub, status, body)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    place.stack.callback(server.shutdown)
    return f'engine = "qdrant"\nurl = "http://127.0.0.1:{server.server_address[1]}"'


def in_milvus(place: Place, dim: int = 8, metric: str = "IP", field: str = "group") -> str:
    """Make a collection of Milvus Lite."""
    pymilvus = pytest.importorskip("pymilvus")
    lite = pytest.importorskip("milvus_lite")
    path = str(place.folder / "items.db")
    client = pymilvus.MilvusClient(path)
    place.stack.callback(lite.server_manager_instance.release_server, path)
    schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
    schema.add_field("id", pymilvus.DataType.INT64, is_primary=True)
    schema.add_field("embedding", pymilvus.DataType.FLOAT_VECTOR, dim=dim)
    schema.add_field(field, pymilvus.DataType.VARCHAR, max_length=20)
    client.create_collection("items", schema=schema)
    params = client.prepare_index_params()
    params.add_index("embedding", index_type="FLAT", metric_type=metric)
    client.create_index("items", params)
    return f'engine = "milvus"\nurl = "{path}"'


COSINE = "CREATE INDEX ON {} USING hnsw (embedding vector_cosine_ops)"
OLD = {"title": "qdrant", "version": "1.13.4", "commit": None}
CASES: dict[str, tuple[Case, str]] = {
    "pgvector: metric": (
        lambda place: in_postgres(place, then=COSINE, index="hnsw"),
        "another metric): run",
    ),
    "pgvector: no index": (lambda place: in_postgres(place, index="hnsw"), "no HNSW index of the inner product: run"),
    "pgvector: dimension": (
        lambda place: in_postgres(place, COLUMNS.replace("8", "4")),
        "have 4 dimensions, and the catalog has 8: use embeddings of the same model",
    ),
    "pgvector: missing column": (
        lambda place: in_postgres(place, COLUMNS.replace('"group"', "kind")),
        "no column 'group' for the attribute 'group'; it has embedding, id, kind: name the column",
    ),
    "pgvector: no rights": (without_rights, "may not SELECT"),
    "pgvector: no extension": (without_pgvector, "have its owner run CREATE EXTENSION vector"),
    "qdrant: metric": (lambda place: in_folder(place, distance="Cosine"), "is not the inner product: make a folder"),
    "qdrant: dimension": (lambda place: in_folder(place, dim=4), "and the catalog has 8 dimensions: use another"),
    "qdrant: formula": (lambda place: on_server(place, 200, OLD), "formulas need 1.14: update it, or set prices"),
    "qdrant: no rights": (
        lambda place: on_server(place, 403, {"status": {"error": "Invalid API key"}}),
        "Check url= and api_key=",
    ),
    "milvus: metric": (
        lambda place: in_milvus(place, metric="COSINE"),
        "is COSINE, and relevance is the inner",
    ),
    "milvus: dimension": (lambda place: in_milvus(place, dim=4), "have 4 dimensions, and the catalog has 8"),
    "milvus: missing field": (lambda place: in_milvus(place, field="kind"), "it has id, embedding, kind: name it with"),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_said_before_the_service_starts(case: str, place: Place) -> None:
    make, message = CASES[case]
    settings = load_settings(configured(place.folder, f"[search]\n{make(place)}\n"), {})
    (problem,) = check(settings, {}).problems
    assert message in problem
    with pytest.raises(FairSyncError):
        make_promise_service(settings)


def test_a_server_without_formulas_is_used_without_them(place: Place) -> None:
    settings = load_settings(configured(place.folder, f'[search]\n{in_folder(place)}\nprices = "over-fetch"\n'), {})
    assert open_engine(settings.search).abilities.prices == "none"
