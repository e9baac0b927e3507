"""A Postgres table as an engine: SQL that ranks items under prices, conditions and exclusions."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fairsync.errors import BackendUnavailableError, InvalidInputError
from fairsync.search.engines.engine import Abilities, EngineQuery, Ranking, StoredItems, edge

# First, because it says what to install if psycopg is missing.
from fairsync.search.engines.pgvector.sessions import PostgresSessions  # isort: skip

from psycopg import sql

from fairsync.search.engines.pgvector.table import PgvectorTable, SqlConditions
from fairsync.search.engines.written_conditions import write_conditions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from fairsync.catalog.attributes import Column
    from fairsync.catalog.conditions import Condition
    from fairsync.catalog.groups import Label
    from fairsync.postgres_connection import PostgresConnection
    from fairsync.search.engines.engine import Bonus, Floats, ItemSchema, Restricted

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
        if index not in ("exact", "hnsw"):
            raise InvalidInputError(f"index must be 'exact' or 'hnsw', got {index!r}.")
        if not 1 <= ef_search <= _MOST_EF_SEARCH:
            raise InvalidInputError(f"ef_search must be from 1 to {_MOST_EF_SEARCH}, got {ef_search}.")
        self.index, self.table = index, PgvectorTable(table, id_column, embedding_column, columns)
        # Plans depend on what is excluded and on how many labels have a bonus.
        settings = {"plan_cache_mode": "force_custom_plan", "jit": "off"}
        if index == "hnsw":
            settings["hnsw.iterative_scan"] = "strict_order"
            settings["hnsw.max_scan_tuples"] = str(_MOST_SCANNED)
            settings["hnsw.ef_search"] = str(ef_search)
        self.server = PostgresSessions(url, timeout, settings)
        # What identifies the table since `prepare`, whatever its name is.
        self._number, self._name_after = 0, ""
        self._again = partial(
            PgvectorEngine, url, id_column=id_column, embedding_column=embedding_column, columns=columns, index=index,
            ef_search=ef_search, timeout=timeout,
        )  # fmt: skip
        exact = index == "exact"
        self.abilities = Abilities(
            prices="bias" if exact else "none",
            most_labels=_MOST_LABELS,
            exact=exact,
            filters=True,
            fetches=True,
            counts=True,
            most_results=_MOST_RESULTS,
            combined_prices=exact,
        )

    @property
    def place(self) -> str:
        """The address of the table."""
        return f"the table {self.table.name!r} at {self.server.address}"

    def exists(self) -> bool:
        """Return whether there is a table of this name."""
        with PostgresSessions(self.server.url, self.server.timeout, {}) as plain:
            return plain.run(self.table.exists)

    def schema(self, attributes: Sequence[str]) -> ItemSchema:
        """Return the types of the columns; see `Engine.schema`."""
        with PostgresSessions(self.server.url, self.server.timeout, {}) as plain:
            return plain.run(lambda one: self.table.schema(one, attributes))

    def prepare(
        self, dim: int, ids: type[str] | type[int], columns: Mapping[str, Column], *, create: bool, writes: bool
    ) -> None:
        """Check the table, or make it; see `Engine.prepare`."""
        # On a connection without the settings of pgvector, which may not be installed yet.
        with PostgresSessions(self.server.url, self.server.timeout, {}) as plain:
            plain.run(lambda one: self.table.prepare(one, dim, ids, columns, create=create, writes=writes))
            self._number = plain.run(self.table.number)

    def finish(self, *, create: bool) -> None:
        """Build the HNSW index if there is none, or check it; see `Engine.finish`."""
        if self.index == "hnsw":
            self.server.run(lambda one: self.table.index_by_hnsw(one, create=create), writes=True)

    def search(self, query: EngineQuery) -> list[Ranking]:
        """Return what is found for each vector; see `Engine.search`."""

        def run(connection: PostgresConnection) -> list[list[tuple[Any, ...]]]:
            statements = [self._select(query, at) for at in range(len(query.vectors))]
            with connection.pipeline():
                cursors = [
                    connection.execute(statement, values, binary=query.with_items) for statement, values in statements
                ]
                return [cursor.fetchall() for cursor in cursors]

        answers = self.server.run(run)
        if any(row[0] != self._number for rows in answers for row in rows):  # the name was given to another table
            self.server.run(self._follow)
            answers = self.server.run(run)
        found = []
        for rows in answers:
            scores = [row[1] for row in rows]
            items = self._items([row[2:] for row in rows]) if query.with_items else None
            beyond = edge(scores, query.count, self.abilities.exact)
            found.append(Ranking([row[2] for row in rows], scores, beyond, items))
        return found

    def _follow(self, connection: PostgresConnection) -> None:
        """Take the present name of the table that was opened."""
        if not self.table.follow(connection, self._number):
            raise BackendUnavailableError(f"{self.place} was replaced, and the old one is gone: open it again.")

    def items(self) -> Iterator[StoredItems]:
        """Yield all items, in batches; see `Engine.items`."""
        with (
            self.server.session() as connection,
            connection.transaction(),
            connection.cursor("fairsync_items") as cursor,
        ):
            cursor.execute(self._stored, binary=True)
            while rows := cursor.fetchmany(_READ_AT_ONCE):
                yield self._items(rows)

    def fetch(self, ids: Sequence[Label]) -> StoredItems:
        """Return those of the items that exist; see `Engine.fetch`."""
        some = sql.SQL("{} AND {} = ANY(%s::{}[])").format(self._stored, self.table.id, sql.SQL(self.table.id_type))
        return self._items(self.server.run(lambda one: one.execute(some, [list(ids)], binary=True).fetchall()))

    @property
    def _stored(self) -> sql.Composed:
        """The statement that reads items."""
        return sql.SQL("SELECT {} FROM {} AS item WHERE {} IS NOT NULL").format(
            self._columns, self.table.identifier, self.table.embedding
        )

    @property
    def _columns(self) -> sql.Composed:
        """All that is read of an item: id, vector, attributes."""
        vector = sql.SQL("vector_send({})").format(self.table.embedding)
        return sql.SQL(", ").join([self._id, vector, *map(self.table.value, self.table.types)])

    def _items(self, rows: Sequence[tuple[Any, ...]]) -> StoredItems:
        ids, vectors, *values = (
            map(list, zip(*rows, strict=True)) if rows else [[] for _ in range(2 + len(self.table.types))]
        )
        return StoredItems(ids, _vectors(vectors), dict(zip(self.table.types, values, strict=True)))

    def count(self, attribute: str | None = None) -> dict[Any, int]:
        """Return the number of items, by label if an attribute is given; see `Engine.count`."""
        label = sql.SQL("NULL") if attribute is None else self.table.value(attribute)
        statement = sql.SQL("SELECT {} AS label, count(*) FROM {} AS item WHERE {} IS NOT NULL GROUP BY 1").format(
            label, self.table.identifier, self.table.embedding
        )
        found = dict(self.server.run(lambda one: one.execute(statement).fetchall()))
        return found if attribute is not None else {None: found.get(None, 0)}

    def combinations(
        self, attributes: Sequence[str], conditions: Sequence[Condition] = ()
    ) -> dict[tuple[Any, ...], int]:
        """Count items by the values of some attributes; see `Engine.combinations`."""
        values: dict[str, Any] = {}
        clauses = [sql.SQL("{} IS NOT NULL").format(self.table.embedding)]
        clauses += write_conditions(conditions, SqlConditions(self.table, values))
        columns = [*map(self.table.value, attributes)]
        grouped = sql.SQL(" GROUP BY {}").format(sql.SQL(", ").join(columns)) if columns else sql.SQL("")
        statement = sql.SQL("SELECT {} FROM {} AS item WHERE {}{}").format(
            sql.SQL(", ").join([sql.SQL("count(*)"), *columns]), self.table.identifier,
            sql.SQL(" AND ").join(clauses), grouped,
        )  # fmt: skip
        found: dict[tuple[Any, ...], int] = {}
        for count, *labels in self.server.run(lambda one: one.execute(statement, values).fetchall()):
            key = tuple(tuple(sorted(one)) if isinstance(one, list) else one for one in labels)
            found[key] = found.get(key, 0) + count
        return found

    def change(self, items: StoredItems, removed: Sequence[Label]) -> None:
        """Write and remove items in one transaction; see `Engine.change`."""
        if self._number:
            self.server.run(self._follow)
        table = self.table
        names = [table.id_column, table.embedding_column, *map(table.column_of, table.types)]
        columns = sql.SQL(", ").join(map(sql.Identifier, names))
        updates = sql.SQL(", ").join(sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in names[1:])
        stage = sql.SQL("CREATE TEMP TABLE fairsync_staged ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA").format(
            columns, table.identifier
        )
        insert = sql.SQL("INSERT INTO {} ({}) SELECT {} FROM fairsync_staged ON CONFLICT ({}) DO UPDATE SET {}").format(
            table.identifier, columns, columns, sql.Identifier(table.id_column), updates
        )
        remove = sql.SQL("DELETE FROM {} AS item WHERE {} = ANY(%s::{}[])").format(
            table.identifier, table.id, sql.SQL(table.id_type)
        )
        values = [items.attributes[name] for name in table.types]

        def run(connection: PostgresConnection) -> None:
            with connection.transaction():
                if len(items):
                    connection.execute(stage)
                    with connection.cursor() as cursor, cursor.copy("COPY fairsync_staged FROM STDIN") as copy:
                        for name, vector, *others in zip(items.ids, items.vectors, *values, strict=True):
                            copy.write_row((name, _text(vector), *others))
                    connection.execute(insert)
                if removed:
                    connection.execute(remove, [list(removed)])

        self.server.run(run, writes=True)

    def beside(self) -> PgvectorEngine | None:
        """Return an engine over a new table; see `Engine.beside`. Tables with other columns cannot be replaced."""
        name = self.table.name
        if self._name_after or not self._number or not self.server.run(self.table.can_be_replaced):
            return None
        made = self._again(table=f"{name}_new")
        made._name_after = name
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

    @property
    def _id(self) -> sql.Composed:
        return sql.SQL("{}::{}").format(self.table.id, sql.SQL(self.table.id_type))

    def _select(self, query: EngineQuery, at: int) -> tuple[sql.Composed, dict[str, Any]]:
        """Return the statement for one vector, and its values."""
        table = self.table
        values: dict[str, Any] = {"vector": _text(query.vectors[at]), "count": query.count}
        distance = sql.SQL("{} <#> %(vector)s::vector").format(table.embedding)
        score, join = sql.SQL("-({})").format(distance), sql.Composed([])
        if query.bonus is not None:
            score, join = sql.SQL("{} + bonus.value").format(score), self._join(query.bonus, values)
        clauses = [sql.SQL("{} IS NOT NULL").format(table.embedding)]
        if query.restricted is not None:
            clauses += self._where(query.restricted[at], values)
        # An index can serve the plain operator only: any other order makes the search exact.
        order = sql.SQL("{} DESC").format(score) if self.index == "exact" else distance
        columns = self._columns if query.with_items else self._id
        number = sql.SQL("item.tableoid::bigint" if self._number else "0::bigint")
        statement = sql.SQL("SELECT {}, {}, {} FROM {} AS item {} WHERE {} ORDER BY {} LIMIT %(count)s").format(
            number, score, columns, table.identifier, join, sql.SQL(" AND ").join(clauses), order
        )
        return statement, values

    def _join(self, bonus: Bonus, values: dict[str, Any]) -> sql.Composed:
        """Return a join with the bonus of each label. Items of labels that are left out have no partner in it."""
        kept = {label: value for label, value in bonus.by_label.items() if value > -math.inf}
        several, names = len(bonus.attributes) > 1, [f"label{at}" for at in range(len(bonus.attributes))]
        for at, name in enumerate(names):
            values[name] = [label[at] if several else label for label in kept]
        values["bonuses"] = list(kept.values())
        pairs = list(zip(bonus.attributes, names, strict=True))
        arrays = [sql.SQL("%({})s::{}[]").format(sql.SQL(name), sql.SQL(self.table.types[one])) for one, name in pairs]
        matches = [sql.SQL("bonus.{} = {}").format(sql.SQL(name), self.table.column(one)) for one, name in pairs]
        return sql.SQL("JOIN unnest({}, %(bonuses)s::float8[]) AS bonus ({}, value) ON {}").format(
            sql.SQL(", ").join(arrays), sql.SQL(", ").join(map(sql.SQL, names)), sql.SQL(" AND ").join(matches)
        )

    def _where(self, restricted: Restricted, values: dict[str, Any]) -> list[sql.Composed]:
        clauses = write_conditions(restricted.conditions, SqlConditions(self.table, values))
        if restricted.excluded:
            values["excluded"] = list(restricted.excluded)
            kind = sql.SQL(self.table.id_type)
            clauses.append(sql.SQL("{} <> ALL(%(excluded)s::{}[])").format(self.table.id, kind))
        return clauses


def _text(vector: Floats) -> str:
    """Return a vector as pgvector reads it.

    Examples
    --------
    >>> _text(np.array([0.5, -2.0], dtype=np.float32))
    '[0.5,-2.0]'
    """
    return f"[{','.join(map(repr, vector.tolist()))}]"


def _vectors(sent: Sequence[bytes]) -> Floats:
    """Return vectors as pgvector sends them: two numbers of 16 bits, then the values, most significant byte first."""
    if not sent:
        return np.empty((0, 0), dtype=np.float32)
    raw = np.frombuffer(b"".join(sent), dtype=np.uint8).reshape(len(sent), -1)
    return np.ascontiguousarray(raw[:, 4:]).view(">f4").astype(np.float32)
