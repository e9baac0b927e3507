"""A Qdrant server, asked by its client; or the client's own local mode, a small copy of Qdrant in Python."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any

from fairsync.errors import InvalidInputError
from fairsync.extras import explain_missing
from fairsync.search.engines.engine import in_parts
from fairsync.search.engines.item_schema import check_dim, check_metric
from fairsync.search.engines.qdrant.requests import FoundPoint, PointQuery
from fairsync.search.engines.retrying import no_answer, refusal, retry
from fairsync.search.engines.versions import new_version, versions_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from qdrant_client import QdrantClient

    from fairsync.search.engines.qdrant.requests import Clause, PointId

MEMORY = ":memory:"
"""The address of the client's local mode."""

# The first server that knows formulas.
_FORMULAS = (1, 14)
_WRITTEN_AT_ONCE = 1000
_KINDS = {"str": "keyword", "int": "integer", "bool": "bool", "float": "float", "": "keyword"}


class QdrantServer:
    """A collection of a Qdrant server.

    Parameters
    ----------
    url
        The address of the server, ``":memory:"``, or a client.
    collection
        The name of the collection, or an alias of it.
    api_key
        The API key, empty if the server asks for none.
    vector_name
        The name of the vector, empty for the one without a name.
    exact
        Whether to search without HNSW.
    timeout
        Seconds that a call may take, with all retries.
    """

    def __init__(
        self, url: str | QdrantClient, collection: str, api_key: str, vector_name: str, exact: bool, timeout: float
    ) -> None:
        with explain_missing("QdrantIndex"):
            import qdrant_client
        self._models: Any = qdrant_client.models
        self._errors: Any = qdrant_client.http.exceptions
        self._collection, self._vector, self._timeout = collection, vector_name, timeout
        # What the name stands for, from `open` on; and the name that a new collection is to take.
        self._held_by, self._name_after = collection, ""
        self._client: Any = url
        if url == MEMORY:
            self._client = qdrant_client.QdrantClient(MEMORY)
        elif isinstance(url, str):
            self._client = qdrant_client.QdrantClient(
                url=url, api_key=api_key or None, timeout=max(1, math.ceil(timeout)), check_compatibility=False
            )
        made = self._client.init_options
        self._is_local = made.get("location") == MEMORY or made.get("path") is not None
        self._url = str(made.get("url") or made.get("location") or made.get("path") or made.get("host"))
        models = self._models
        # Local mode is always exact, and warns of parameters that it does not have.
        quantization = models.QuantizationSearchParams(ignore=True)
        self._params = models.SearchParams(exact=True, quantization=quantization) if exact else None
        if self._is_local:
            self._params = None

    @property
    def place(self) -> str:
        """The address of the collection."""
        return f"the collection {self._collection!r} of Qdrant at {self._url}"

    def exists(self) -> bool:
        """Return whether the collection is there."""
        return bool(self._call("collection_exists", self._collection))

    def open(self, dim: int, keys: Mapping[str, str], *, create: bool, formulas: bool) -> None:
        """Check the collection, or make it, with an index of each payload field of these types."""
        models, name = self._models, self._collection
        if formulas and not self._is_local:
            self._check_version()
        if not self.exists():
            if not create:
                raise self._absent()
            params = models.VectorParams(size=dim, distance=models.Distance.DOT)
            self._call("create_collection", name, {self._vector: params} if self._vector else params)
            if not self._is_local:  # it has none
                for key, kind in keys.items():
                    self._call("create_payload_index", name, key, _KINDS[kind])
        self._check_vectors(self._call("get_collection", name).config.params.vectors, dim)
        self._pin()

    def _absent(self) -> InvalidInputError:
        return InvalidInputError(
            f"there is no collection {self._collection!r} in Qdrant at {self._url}: check its name, or have it made"
            " with upload=True."
        )

    def query(
        self, queries: Sequence[PointQuery], payload: Sequence[str], *, vectors: bool = False
    ) -> list[list[FoundPoint]]:
        """Return the points found by each query, best first, with these payload fields, and with vectors if asked."""
        requests = [self._request(one, list(payload), vectors) for one in queries]
        answers = self._call("query_batch_points", self._held_by, requests)
        return [[self._found(one, one.score) for one in answer.points] for answer in answers]

    def load(self) -> None:
        """Open the collection as it is, before anything is known of it; raise if it is not there."""
        if not self.exists():
            raise self._absent()
        self._pin()

    def beside(self) -> QdrantServer | None:
        """Return a new collection that can take the name of this one; None if the name is no alias."""
        if self._name_after or self._held_by == self._collection:
            return None
        made = copy.copy(self)
        made._collection, made._name_after = new_version(self._collection), self._collection
        return made

    def switch(self) -> None:
        """Move the alias to this collection, and drop what had it before the last; see `Engine.switch`."""
        models, name = self._models, self._name_after
        before = self._aliases().get(name)
        remove = models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=name))
        make = models.CreateAliasOperation(
            create_alias=models.CreateAlias(collection_name=self._held_by, alias_name=name)
        )
        # Both at one moment, for all clients.
        self._call("update_collection_aliases", [remove, make] if before else [make])
        self._collection, self._name_after = name, ""
        there = [one.name for one in self._call("get_collections").collections]
        for other in versions_of(name, there, kept=[before, self._held_by]):
            self._call("delete_collection", other)

    def _pin(self) -> None:
        """Take the collection that the name stands for now."""
        self._held_by = self._aliases().get(self._collection, self._collection)

    def _aliases(self) -> dict[str, str]:
        found = self._call("get_aliases").aliases
        return {one.alias_name: one.collection_name for one in found}

    def scroll(
        self, after: Any, limit: int, clauses: Sequence[Clause] = (), *, vectors: bool = True
    ) -> tuple[list[FoundPoint], Any]:
        """Return the next points that meet conditions, with payload and vector, and where to go on; None at the end."""
        only = self._filter(clauses)
        points, then = self._call(
            "scroll", self._held_by, scroll_filter=only, offset=after, limit=limit, with_vectors=vectors
        )
        return [self._found(one) for one in points], then

    def retrieve(self, ids: Sequence[PointId]) -> list[FoundPoint]:
        """Return those of the points that exist, with payload and vector."""
        found = self._call("retrieve", self._held_by, list(ids), with_vectors=True)
        return [self._found(one) for one in found]

    def count(self) -> int:
        """Return the number of points."""
        return int(self._call("count", self._held_by, exact=True).count)

    def upsert(self, points: Sequence[FoundPoint]) -> None:
        """Add or replace points."""
        for some in in_parts(points, _WRITTEN_AT_ONCE):
            structs = [
                self._models.PointStruct(
                    id=one.id,
                    payload=dict(one.payload),
                    vector={self._vector: one.vector} if self._vector else one.vector,
                )
                for one in some
            ]
            self._call("upsert", self._held_by, structs, wait=True)

    def delete(self, ids: Sequence[PointId]) -> None:
        """Remove points."""
        selector = self._models.PointIdsList(points=list(ids))
        self._call("delete", self._held_by, selector, wait=True)

    def check_writes(self) -> None:
        """Raise if the key may only read, by a deletion that no point meets."""
        nothing = self._models.Filter(must=[self._models.HasIdCondition(has_id=[])])
        self._call("delete", self._held_by, self._models.FilterSelector(filter=nothing))

    def _call(self, name: str, *given: Any, **more: Any) -> Any:
        """Call an idempotent method of the client, and retry it until the timeout if the server is down or starting."""

        def attempt(left: float) -> Any:
            try:
                return getattr(self._client, name)(*given, **more)
            except self._errors.UnexpectedResponse as error:
                if error.status_code is None or error.status_code < 500:
                    said = error.content.decode(errors="replace")[:200] or error.reason_phrase
                    words = f"{said} (status {error.status_code})"
                    raise refusal(f"Qdrant at {self._url}", words, "Check url= and api_key=.") from error
                raise no_answer(f"Qdrant at {self._url}", str(error)[:200]) from error
            except self._errors.ResponseHandlingException as error:
                raise no_answer(f"Qdrant at {self._url}", str(error)[:200]) from error

        return retry(attempt, self._timeout)

    def _check_version(self) -> None:
        version = str(self._call("info").version)
        if tuple(int(part) for part in version.split("-")[0].split(".")[:2]) < _FORMULAS:
            needed = ".".join(map(str, _FORMULAS))
            raise InvalidInputError(
                f"Qdrant at {self._url} is {version}, and formulas need {needed}: update it, or set"
                " prices='over-fetch'."
            )

    def _check_vectors(self, held: Any, dim: int) -> None:
        if isinstance(held, dict):
            if self._vector not in held:
                raise InvalidInputError(
                    f"{self.place} has no vector {self._vector!r}; it has {', '.join(map(repr, held))}: name one with"
                    " vector_name=."
                )
            held = held[self._vector]
        elif self._vector:
            raise InvalidInputError(f"{self.place} has one vector without a name: leave vector_name= out.")
        check_dim(dim, held.size, self.place)
        check_metric(held.distance.value, "Dot", self.place)

    def _found(self, one: Any, score: float = math.nan) -> FoundPoint:
        vector = one.vector[self._vector] if self._vector and one.vector else one.vector
        return FoundPoint(one.id, one.payload or {}, score, vector)

    def _request(self, query: PointQuery, payload: list[str], vectors: bool) -> Any:
        models, using = self._models, self._vector or None
        only = self._filter(query.clauses, query.excluded)
        vector, fields = query.vector.tolist(), payload or False
        if not query.boosts:
            return models.QueryRequest(
                query=vector, using=using, filter=only, params=self._params, limit=query.limit, offset=query.offset,
                with_payload=fields, with_vector=vectors,
            )  # fmt: skip
        terms = [models.MultExpression(mult=[boost, self._condition(one)]) for boost, one in query.boosts]
        fetch = models.Prefetch(query=vector, using=using, filter=only, params=self._params, limit=query.depth)
        formula = models.FormulaQuery(formula=models.SumExpression(sum=["$score", *terms]))
        return models.QueryRequest(
            prefetch=[fetch], query=formula, limit=query.limit, with_payload=fields, with_vector=vectors
        )

    def _filter(self, clauses: Sequence[Clause], excluded: Sequence[PointId] = ()) -> Any:
        must = [self._condition(one) for one in clauses if not one.negated]
        must_not = [self._condition(one) for one in clauses if one.negated]
        if excluded:
            must_not.append(self._models.HasIdCondition(has_id=list(excluded)))
        return self._models.Filter(must=must, must_not=must_not) if must or must_not else None

    def _condition(self, clause: Clause) -> Any:
        """Return what a clause says, negated or not, in the types of the client."""
        models, key = self._models, clause.key
        parts = [models.FieldCondition(key=key, range=models.Range(gte=a, lte=b)) for a, b in clause.ranges]
        labels = [one for one in clause.values if not isinstance(one, bool | float)]
        if labels:
            parts.append(models.FieldCondition(key=key, match=models.MatchAny(any=labels)))
        bools = [one for one in clause.values if isinstance(one, bool)]
        parts += [models.FieldCondition(key=key, match=models.MatchValue(value=one)) for one in bools]
        return parts[0] if len(parts) == 1 else models.Filter(should=parts)
