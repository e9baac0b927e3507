"""A Postgres table as an engine: SQL that ranks items under prices, conditions and exclusions."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from fairsync.search.engines.engine import (
    Abilities,
    EngineQuery,
    Ranking,
    StoredItems,
    check_settings,
    edge,
    plain_values,
)

# First, because it says what to install if psycopg is missing.
from fairsync.search.engines.pgvector.sessions import PostgresSessions  # isort: skip

from psycopg import sql

from fairsync.search.engines.pgvector.statements import count_statement, select, to_text, to_vectors, write_statements
from fairsync.search.engines.pgvector.table import PgvectorTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from fairsync.catalog.conditions import Condition
    from fairsync.catalog.groups import Label
    from fairsync.postgres_connection import PostgresConnection
    from fairsync.search.engines.item_schema import ItemSchema

_Answer = TypeVar("_Answer")

# Beyond this many labels, sending a bonus for each takes longer than over-fetching.
_MOST_LABELS = 10_000
_MOST_RESULTS = 100_000
# The limits of pgvector's HNSW: its candidate list, and the rows that it goes through to fill a long answer.
_MOST_EF_SEARCH, _MOST_SCANNED = 1000, 1_000_000
_READ_AT_ONCE = 10_000


class PgvectorEngine:
    """A Postgres table with a pgvector column; see `PgvectorIndex` for the parameters."""

    def __init__(
        self,
        url: str,
        table: str = "items",
        *,
        id_column: str = "id",
        embedding_column: str = "embedding",
        columns: Mapping[str, str] | None = None,
        index: Literal["exact", "hnsw"] = "exact",
        ef_search: int = 200,
        timeout: float = 10.0,
    ) -> None:
        check_settings(index, timeout=timeout, name=table, ef_search=ef_search, most_ef_search=_MOST_EF_SEARCH)
        self.index, self.table = index, PgvectorTable(table, id_column, embedding_column, columns)
        # Plans depend on what is excluded and on how many labels have a bonus.
        settings = {"plan_cache_mode": "force_custom_plan", "jit": "off"}
        if index == "hnsw":
            settings["hnsw.iterative_scan"] = "strict_order"
            settings["hnsw.max_scan_tuples"] = str(_MOST_SCANNED)
            settings["hnsw.ef_search"] = str(ef_search)
        self.server = PostgresSessions(url, timeout, settings)
        self._name_after = ""
        exact = index == "exact"
        self.abilities = Abilities(
            prices="bias" if exact else "none",
            most_labels=_MOST_LABELS,
            exact=exact,
            most_results=_MOST_RESULTS,
            combined_prices=exact,
        )

    @property
    def place(self) -> str:
        """The address of the table."""
        return f"the table {self.table.name!r} at {self.server.address}"

    def exists(self) -> bool:
        """Return whether there is a table of this name."""
        return self._plainly(self.table.exists)

    def schema(self, attributes: Sequence[str]) -> ItemSchema:
        """Return the types of the columns; see `Engine.schema`."""
        found = self._plainly(lambda one: self.table.schema(one, attributes))
        if not found.dim:
            raise self.table.no_dimensions()
        return found

    def prepare(self, schema: ItemSchema, *, create: bool, writes: bool) -> None:
        """Check the table, or make it; see `Engine.prepare`."""
        self._plainly(lambda one: self.table.prepare(one, schema, create=create, writes=writes))

    def _plainly(self, work: Callable[[PostgresConnection], _Answer]) -> _Answer:
        """Work on a connection without the settings of pgvector, which may not be installed yet."""
        with PostgresSessions(self.server.url, self.server.timeout, {}) as plain:
            return plain.run(work)

    def finish(self, *, create: bool) -> None:
        """Build the HNSW index if there is none, or check it; see `Engine.finish`."""
        if self.index == "hnsw":
            self.server.run(lambda one: self.table.index_by_hnsw(one, create=create), writes=True)

    def search(self, query: EngineQuery) -> list[Ranking]:
        """Return what is found for each vector; see `Engine.search`."""

        def run(connection: PostgresConnection) -> list[list[tuple[Any, ...]]]:
            by_index = not self.abilities.exact
            statements = [select(self.table, query, at, by_index=by_index) for at in range(len(query.vectors))]
            with connection.pipeline():
                cursors = [
                    connection.execute(statement, values, binary=query.with_items) for statement, values in statements
                ]
                return [cursor.fetchall() for cursor in cursors]

        answers = self.server.run(run)
        if any(row[0] != self.table.number for rows in answers for row in rows):  # the name was given to another table
            self.server.run(self.table.follow)
            answers = self.server.run(run)
        found = []
        for rows in answers:
            scores = [row[1] for row in rows]
            items = self._items([row[2:] for row in rows]) if query.with_items else None
            beyond = edge(scores, query.count, self.abilities.exact)
            found.append(Ranking([row[2] for row in rows], scores, beyond, items))
        return found

    def items(self) -> Iterator[StoredItems]:
        """Yield all items, in batches; see `Engine.items`."""
        with (
            self.server.session() as connection,
            connection.transaction(),
            connection.cursor("fairsync_items") as cursor,
        ):
            cursor.execute(self._all, binary=True)
            while rows := cursor.fetchmany(_READ_AT_ONCE):
                yield self._items(rows)

    def fetch(self, ids: Sequence[Label]) -> StoredItems:
        """Return those of the items that exist; see `Engine.fetch`."""
        some = sql.SQL("{} AND {} = ANY(%s::{}[])").format(self._all, self.table.id, sql.SQL(self.table.id_type))
        return self._items(self.server.run(lambda one: one.execute(some, [list(ids)], binary=True).fetchall()))

    @property
    def _all(self) -> sql.Composed:
        """The statement that reads items."""
        table = self.table
        return sql.SQL("SELECT {} FROM {} AS item WHERE {}").format(table.stored, table.identifier, table.has_embedding)

    def _items(self, rows: Sequence[tuple[Any, ...]]) -> StoredItems:
        ids, vectors, *values = (
            map(list, zip(*rows, strict=True)) if rows else [[] for _ in range(2 + len(self.table.types))]
        )
        return StoredItems(ids, to_vectors(vectors), dict(zip(self.table.types, values, strict=True)))

    def count(self, attributes: Sequence[str] = (), conditions: Sequence[Condition] = ()) -> dict[tuple[Any, ...], int]:
        """Count items by the values of some attributes; see `Engine.count`."""
        statement, values = count_statement(self.table, attributes, conditions)
        found: dict[tuple[Any, ...], int] = {}
        for count, *labels in self.server.run(lambda one: one.execute(statement, values).fetchall()):
            key = plain_values(labels)
            found[key] = found.get(key, 0) + count
        return found

    def change(self, items: StoredItems, removed: Sequence[Label]) -> None:
        """Write and remove items in one transaction; see `Engine.change`."""
        table = self.table
        if table.number:
            self.server.run(table.follow)
        values = [items.attributes[name] for name in table.types]
        stage, insert, remove = write_statements(table)

        def run(connection: PostgresConnection) -> None:
            with connection.transaction():
                if len(items):
                    connection.execute(stage)
                    with connection.cursor() as cursor, cursor.copy("COPY fairsync_staged FROM STDIN") as writer:
                        for name, vector, *others in zip(items.ids, items.vectors, *values, strict=True):
                            writer.write_row((name, to_text(vector), *others))
                    connection.execute(insert)
                if removed:
                    connection.execute(remove, [list(removed)])

        self.server.run(run, writes=True)

    def beside(self) -> PgvectorEngine | None:
        """Return an engine over a new table; see `Engine.beside`. Tables with other columns cannot be replaced."""
        if self._name_after or not self.table.number or not self.server.run(self.table.can_be_replaced):
            return None
        made = copy.copy(self)
        made.table, made._name_after = self.table.named(f"{self.table.name}_new"), self.table.name
        drop = sql.SQL("DROP TABLE IF EXISTS {}").format(made.table.identifier)  # of a switch that was interrupted
        self.server.run(lambda one: one.execute(drop), writes=True)
        return made

    def switch(self) -> None:
        """Exchange the names of two tables in one transaction; see `Engine.switch`."""
        self.server.run(lambda one: self.table.switch(one, self._name_after), writes=True)
        self._name_after = ""

    def close(self) -> None:
        """Close the connections that are not in use."""
        self.server.close()
