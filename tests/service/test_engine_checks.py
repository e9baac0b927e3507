"""What does not fit in an engine is said by `fairsync check`, with the remedy, and a service does not start."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
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
from service.running import small_catalog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from benchmarks.milvus_server import MilvusServer

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

    @property
    def milvus(self) -> MilvusServer:
        server: MilvusServer = self._request.getfixturevalue("milvus_with_users")
        return server


@pytest.fixture(scope="module")
def milvus_with_users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MilvusServer]:
    """Start a real Milvus that checks rights, with a collection of the catalog: `stranger` has none, `reader` reads."""
    pymilvus = pytest.importorskip("pymilvus")
    pytest.importorskip("milvus")
    from benchmarks.milvus_server import MilvusServer

    from fairsync.search.engines.milvus import MilvusIndex

    server = MilvusServer(tmp_path_factory.mktemp("milvus"), authorization=True)
    try:
        server.start()
        MilvusIndex(small_catalog(), server.uri, api_key="root:Milvus", upload=True)
        client = pymilvus.MilvusClient(server.uri, token="root:Milvus")
        client.create_role("reads")
        for privilege in ("Search", "Query", "Load", "IndexDetail", "GetLoadState"):
            client.grant_privilege("reads", "Collection", privilege, "*")
        for name in ("stranger", "reader"):
            client.create_user(name, "secret-word")
        client.grant_role("reader", "reads")
        yield server
    finally:
        server.kill()


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


def in_folder(place: Place, dim: int = 8, distance: str = "Dot", **payload: Any) -> str:
    """Make a folder of Qdrant's engine with one point."""
    edge = pytest.importorskip("qdrant_edge")
    params = edge.EdgeVectorParams(size=dim, distance=getattr(edge.Distance, distance))
    (place.folder / "vectors" / "items").mkdir(parents=True)
    shard = edge.EdgeShard.create(str(place.folder / "vectors" / "items"), edge.EdgeConfig(vectors=params))
    shard.update(edge.UpdateOperation.upsert_points([edge.Point(1, [2.0] * dim, payload or {"group": "toys"})]))
    shard.flush()
    shard.close()
    return f'engine = "qdrant"\nurl = "{place.folder}/vectors"'


class Stub(BaseHTTPRequestHandler):
    """Answers as a Qdrant server would: there is none to be had here.

    Parameters
    ----------
    status, body
        The answer to all calls, except for
    reads
        the bodies of these, by path.
    """

    def __init__(self, status: int, body: dict[str, Any], reads: dict[str, Any], *given: Any) -> None:
        self._answer, self._reads = (status, body), reads
        super().__init__(*given)

    def do_GET(self) -> None:
        status, body = (200, self._reads[self.path]) if self.path in self._reads else self._answer
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def log_message(self, *_: object) -> None:
        pass


def on_server(place: Place, status: int, body: dict[str, Any], reads: dict[str, Any] | None = None) -> str:
    """Start a Qdrant that always gives the same answer, except to some calls."""
    pytest.importorskip("qdrant_client")
    server = place.stack.enter_context(HTTPServer(("127.0.0.1", 0), partial(Stub, status, body, reads or {})))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    place.stack.callback(server.shutdown)
    return f'engine = "qdrant"\nurl = "http://127.0.0.1:{server.server_address[1]}"'


def read_only(place: Place) -> str:
    """Start a Qdrant with a collection that fits, for a key that may only read."""
    qdrant = pytest.importorskip("qdrant_client")
    client = qdrant.QdrantClient(":memory:")
    params = qdrant.models.VectorParams(size=8, distance=qdrant.models.Distance.DOT)
    client.create_collection("items", params)
    reads = {
        "/": OLD | {"version": "1.14.0"},
        "/collections/items/exists": {"result": {"exists": True}},
        "/collections/items": {"result": client.get_collection("items").model_dump(mode="json")},
        "/aliases": {"result": {"aliases": []}},
    }
    return on_server(place, 403, {"status": {"error": "Write access is required"}}, reads) + "\nupload = true"


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


def as_user(place: Place, token: str, more: str = "") -> str:
    """Use Milvus as a user of it."""
    return f'engine = "milvus"\nurl = "{place.milvus.uri}"\napi_key = "{token}"\n{more}'


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
    "qdrant: metric": (
        lambda place: in_folder(place, distance="Cosine"),
        "relevance is the inner product: use a collection with Dot",
    ),
    "qdrant: dimension": (
        lambda place: in_folder(place, dim=4),
        "have 4 dimensions, and the catalog has 8: use embeddings",
    ),
    "qdrant: missing field": (
        lambda place: in_folder(place, kind="toys"),
        "no payload field 'group' for the attribute 'group'; it has kind: name the field",
    ),
    "qdrant: type": (
        lambda place: in_folder(place, group=7),
        "has whole numbers for the attribute 'group', which needs words: name another column or field, or convert it",
    ),
    "qdrant: formula": (lambda place: on_server(place, 200, OLD), "formulas need 1.14: update it, or set prices"),
    "qdrant: no rights": (
        lambda place: on_server(place, 403, {"status": {"error": "Invalid API key"}}),
        "Check url= and api_key=",
    ),
    "qdrant: may only read": (read_only, "Write access is required"),
    "milvus: metric": (
        lambda place: in_milvus(place, metric="COSINE"),
        "is COSINE, and relevance is the inner",
    ),
    "milvus: dimension": (lambda place: in_milvus(place, dim=4), "have 4 dimensions, and the catalog has 8"),
    "milvus: missing field": (lambda place: in_milvus(place, field="kind"), "it has id, embedding, kind: name it with"),
    "milvus: no rights": (
        lambda place: as_user(place, "stranger:secret-word"),
        "PrivilegeLoad: permission deny to stranger. Have an administrator grant it to a role of this user",
    ),
    "milvus: may only read": (
        lambda place: as_user(place, "reader:secret-word", "upload = true"),
        "PrivilegeDelete: permission deny to reader. Have an administrator grant it to a role of this user",
    ),
    "milvus: wrong password": (
        lambda place: as_user(place, "reader:secret"),
        "Check user and password, or the API key",
    ),
    "milvus: no password": (lambda place: as_user(place, ""), "Check user and password"),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_said_before_the_service_starts(case: str, place: Place) -> None:
    make, message = CASES[case]
    settings = load_settings(configured(place.folder, f"[search]\n{make(place)}\n"), {})
    (problem,) = check(settings, {}).problems
    assert message in problem
    with pytest.raises(FairSyncError):
        make_promise_service(settings)


@pytest.mark.parametrize("case", ["pgvector: dimension", "pgvector: no rights", "milvus: metric"])
def test_the_command_says_it_before_it_opens_a_port(case: str, place: Place) -> None:
    """Another process listens on the port, so that an attempt to open it first would be what is reported."""
    make, message = CASES[case]
    lines = f"[search]\n{make(place)}\n"
    place.stack.close()  # Milvus Lite: one process has the file
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        config = configured(place.folder, lines, port=other.getsockname()[1])
        command = [sys.executable, "-c", "from fairsync.cli import app; app()", "serve", str(config)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert message in ended.stderr
    assert "cannot listen" not in ended.stderr
    assert not (place.folder / "exposures.db").exists()


def test_a_user_of_milvus_who_may_read_can_be_used(place: Place) -> None:
    settings = load_settings(configured(place.folder, f"[search]\n{as_user(place, 'reader:secret-word')}\n"), {})
    assert check(settings, {}).problems == []


def test_a_server_without_formulas_is_used_without_them(place: Place) -> None:
    settings = load_settings(configured(place.folder, f'[search]\n{in_folder(place)}\nprices = "over-fetch"\n'), {})
    assert open_engine(settings.search).abilities.prices == "none"
