"""Settings of the service: one TOML file, overridden by environment variables; every key is checked at the start."""

from __future__ import annotations

import ipaddress
import os
import tomllib
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import quote

import msgspec
from msgspec import Meta, Struct

from fairsync.errors import InvalidInputError
from fairsync.ledger import Retention
from fairsync.ledger.urls import MEMORY, describe_url, is_postgres, sqlite_path
from fairsync.schedule import WORST_CASE_TRAFFIC, Forecast
from fairsync.service.arms.assignment import check_shares
from fairsync.service.schema import PromiseRecord  # noqa: TC001 - msgspec resolves the annotations
from fairsync.service.validation import Key, parse_struct

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "FAIRSYNC_"
Role = Literal["retrieve", "report", "admin"]
Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0, le=86_400)]


class CatalogSettings(Struct, frozen=True, kw_only=True):
    """``[catalog]``: the items. Without it, only the search engine holds them, and the service keeps no copy."""

    path: Path | None = None
    """A folder that ``save_catalog`` or ``fairsync export`` wrote, or a .parquet, .csv or .npz file (id, attributes,
    embedding)."""


class ModelSettings(Struct, frozen=True, kw_only=True):
    """``[model]``: the model that turns histories into vectors. Without it, requests must contain vectors."""

    path: Path | None = None
    """A folder that ``fairsync train`` wrote."""


_WANTED = "name a TOML file of settings (docs/service.md); 'fairsync serve MODEL' writes one for a model"
_OF_ITEMS = ("url", "index", "columns", "upload", "attributes", "filters", "timeout")
SEARCH_KEYS: dict[str, tuple[str, ...]] = {
    "embedded": ("index", "threads", "shards"),
    "ray": ("ray", "ray_address"),
    "pgvector": (*_OF_ITEMS, "table", "id_column", "embedding_column", "ef_search"),
    "qdrant": (*_OF_ITEMS, "collection", "api_key", "id_key", "vector_name", "prices"),
    "milvus": (*_OF_ITEMS, "collection", "api_key", "id_column", "embedding_column", "ef_search"),
}
"""The keys of ``[search]`` that each engine uses."""


class SearchSettings(Struct, frozen=True, kw_only=True):
    """``[search]``: the index, in this process or in an engine that holds the items."""

    engine: Literal["embedded", "pgvector", "qdrant", "milvus", "ray"] = "embedded"
    """What searches: this process, or an engine. Each has its own keys. With ``ray``, the default is "ray"."""
    index: Literal["exact", "ivf", "hnsw", "one-hot"] = "exact"
    """The index. pgvector, Qdrant and Milvus have ``exact`` and ``hnsw``."""
    threads: Positive | None = None
    """Threads of an exact search. Defaults to the number of processors."""
    shards: Positive = 1
    """Parts of the catalog that are searched in parallel in this process."""
    ray: str | None = None
    """Ray: name of the shards that ``fairsync cluster start`` started."""
    ray_address: str = "auto"
    """Ray: address of the cluster."""
    url: str = ""
    """Address of the engine. Set FAIRSYNC_SEARCH_URL if it contains a password."""
    table: str = "items"
    """pgvector: name of the table."""
    id_column: str = "id"
    """pgvector, Milvus: column of the ids."""
    embedding_column: str = "embedding"
    """pgvector, Milvus: column of the embeddings."""
    columns: dict[str, str] = {}
    """Column or payload field of each attribute whose name is another one."""
    collection: str = "items"
    """Qdrant, Milvus: name of the collection."""
    api_key: str = ""
    """Qdrant, Milvus: key of the server. Set FAIRSYNC_SEARCH_API_KEY."""
    id_key: str = "id"
    """Qdrant: payload field of ids that are words; empty if these are the UUIDs of the points."""
    vector_name: str = ""
    """Qdrant: name of the vector, if it has one."""
    prices: Literal["formula", "over-fetch"] = "formula"
    """Qdrant: how prices enter; ``"over-fetch"`` for servers before 1.14, which know no formulas."""
    ef_search: Positive = 200
    """pgvector, Milvus: size of the candidate list of HNSW. A larger one finds more of the best items."""
    upload: bool = False
    """Whether to write to the engine: items that are missing or different at the start, and later changes. Without a
    ``[catalog]``: later changes."""
    attributes: list[str] = []
    """Without a ``[catalog]``: the attributes that promises may speak of, the groups first."""
    filters: list[str] = []
    """Without a ``[catalog]``: further attributes that conditions of requests may speak of."""
    timeout: Seconds = 3.0
    """Seconds that the engine may take to answer. A call that takes longer gets status 503."""

    @classmethod
    def unused(cls, given: Mapping[str, Any]) -> dict[str, str]:
        """Return the keys of other engines than the one that is named; see `parse_struct`."""
        engine = given.get("engine", "ray" if "ray" in given else "embedded")
        found = {}
        for key in given if str(engine) in SEARCH_KEYS else ():
            users = [f"{name!r}" for name, keys in SEARCH_KEYS.items() if key in keys]
            if users and repr(engine) not in users:
                found[key] = f"engine = {engine!r} does not use it: remove it, or set engine to {' or '.join(users)}"
        return found

    def __post_init__(self) -> None:
        if self.engine in ("pgvector", "qdrant", "milvus"):
            if not self.url:
                raise ValueError(f"engine is {self.engine!r}, and there is no url: give the address of the engine")
            if self.index not in ("exact", "hnsw"):
                raise ValueError(f"{self.engine} has no index {self.index!r}: use 'exact' or 'hnsw'")
        if self.engine == "ray" and self.ray is None:
            raise ValueError("engine is 'ray', and there is no ray: give the name of the shards")


class PromiseSettings(Struct, frozen=True, kw_only=True):
    """``[promise]``: the loop that keeps the promises."""

    k: Positive = 20
    """Candidates per request."""
    batch_size: Positive = 64
    """Most requests between two changes of the prices."""
    count: Literal["retrieved", "impressions"] = "retrieved"
    """An exposure is a retrieved candidate, or an impression that was reported."""
    policy: str = "guaranteed"
    """Name of the policy that sets the prices."""
    budget: Annotated[float, Meta(gt=0, lt=1)] | None = None
    """The part of the relevance that all promises together may cost, such as 0.01. Beyond it, floors give way, the
    lowest priority first."""
    max_exclude: Annotated[int, Meta(ge=0)] = 0
    """Items that a request excludes at most, history included, as promises assume. Requests that exclude more, or have
    a condition, are answered, and promises count on them only if they leave enough items of each."""
    cold: Literal["mean"] | Annotated[list[str | int | float], Meta(min_length=1)] = "mean"
    """Fallback for users of whom nothing is known: the ``"mean"`` of the latest user vectors, and before the first that
    of the items; a vector, with at least one float in it; or a list of item ids, shown in this order."""
    count_cold: bool = True
    """Whether candidates of such users are exposures."""


class TrafficSettings(Struct, frozen=True, kw_only=True):
    """``[traffic]``: the forecast before any traffic was observed."""

    per_second: Annotated[float, Meta(ge=0, le=1e9)] = 1.0
    """Expected requests per second."""
    zone: str = "UTC"
    """IANA time zone whose clock the daily pattern of the traffic follows."""
    worst_case: Annotated[float, Meta(gt=0, le=1)] = WORST_CASE_TRAFFIC
    """Worst-case traffic, as a fraction of the forecast. With a smaller one, floors are served earlier in a window."""

    @property
    def forecast(self) -> Forecast:
        """The traffic forecast before any traffic was observed."""
        return Forecast(rate=self.per_second, zone=self.zone)


class LedgerSettings(Struct, frozen=True, kw_only=True):
    """``[ledger]``: the durable record of exposures. ``ledger = "sqlite:///exposures.db"`` sets its URL only."""

    url: str = "sqlite:///fairsync.db"
    """``sqlite:///exposures.db``, ``postgresql://user@host/database?schema=shop``, or ``memory://``. Services with the
    same Postgres database and schema share their promises. Set FAIRSYNC_LEDGER_URL if it contains a password."""
    answers_seconds: Annotated[float, Meta(gt=0, le=1e9)] = Retention.seconds
    """Seconds for which answers are saved, so that a repeated request gets the same answer and is counted once."""
    answers_bytes: Positive = Retention.max_bytes
    """Most bytes of saved answers. If they do not suffice for that time, the oldest answers are deleted earlier."""
    known_ids: Positive = Retention.max_ids
    """Request ids that are known when their answer is no longer saved. Repeating such a request is refused."""

    def __post_init__(self) -> None:
        if self.url != MEMORY:
            describe_url(self.url)  # refuses a URL that names no ledger

    @property
    def retention(self) -> Retention:
        """How long answers are saved."""
        return Retention(self.answers_seconds, self.answers_bytes, self.known_ids)


class HttpSettings(Struct, frozen=True, kw_only=True):
    """``[http]``: the address and the limits of the server."""

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535)] = 8080
    """Port to listen on. With 0 the system chooses one."""
    max_body_bytes: Annotated[int, Meta(ge=1_000)] = 16_000_000
    """Largest body of a call."""
    max_k: Positive = 1_000
    """Largest number of candidates per request."""
    max_users: Positive = 1_024
    """Most requests in one call."""
    max_interests: Positive = 16
    """Most vectors of one user."""
    max_candidates: Positive = 100_000
    """Most candidates in one answer: requests of the call times k."""
    max_exclude: Positive = 10_000
    """Most ids that one request may exclude, its history not counted."""
    max_exclude_per_call: Positive = 100_000
    """Most ids that all requests of one call may exclude together."""
    max_items: Positive = 10_000
    """Most items in one change of the catalog, and most reports in one call."""
    max_batch: Positive = 256
    """Most requests in one micro-batch."""
    max_waiting: Positive = 4_096
    """Backpressure: most requests that may wait for the search. Further ones are rejected at once."""
    max_wait_seconds: Seconds = 2.0
    """Backpressure: a request that would wait longer than this for the search is rejected at once."""
    max_connections: Positive = 4_096
    """Most open connections."""
    request_seconds: Seconds = 10.0
    """Deadline of a call."""
    drain_seconds: Annotated[float, Meta(ge=0, le=86_400)] = 0.0
    """Seconds between the signal to stop and the end of service. /ready fails meanwhile, so that load balancers
    send calls elsewhere."""
    shutdown_seconds: Seconds = 20.0
    """Seconds within which the service ends when it stops, at least 2. Calls in flight have four fifths of it, and
    saving the rest; what is not done then is abandoned."""
    log: Literal["all", "problems"] = "all"
    """Log every call, or failed calls only."""


class TracesSettings(Struct, frozen=True, kw_only=True):
    """``[traces]``: OpenTelemetry. Needs ``fairsync[otel]``."""

    endpoint: Annotated[str, Meta(pattern="^https?://")] | None = None
    """Address of a collector, OTLP over HTTP, such as ``http://collector:4318/v1/traces``. Without it, nothing is
    traced."""
    sample: Annotated[float, Meta(gt=0, le=1)] = 1.0
    """Share of the calls that are traced, unless the caller's ``traceparent`` decides it."""


class ArmSettings(Struct, frozen=True, kw_only=True):
    """``[[arms]]``: an arm of an A/B test. Each has its part of the promises, its own prices and its own ledger."""

    name: Annotated[str, Meta(pattern="^[a-z0-9_]{1,20}$")]
    """Name of the arm: small letters, digits and underscores."""
    share: float
    """Share of the users. All shares add up to 1."""
    policy: str | None = None
    """Policy of the arm, in place of ``promise.policy``."""
    batch_size: Positive | None = None
    """Most requests between two changes of the arm's prices, in place of ``promise.batch_size``."""


class TokenSettings(Struct, frozen=True, kw_only=True):
    """``[[tokens]]``: a bearer token and its roles. The file has its SHA-256, or the variable that holds it."""

    name: Annotated[str, Meta(min_length=1, max_length=100)]
    """Name of the token in the log."""
    roles: Annotated[list[Role], Meta(min_length=1)]
    """What the token may do; ``admin`` may do everything."""
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")] | None = None
    """SHA-256 of the token, in hexadecimal."""
    env: str | None = None
    """Name of the environment variable that holds the token."""
    per_second: Annotated[float, Meta(gt=0, le=1e9)] | None = None
    """Rate limit: requests per second, on average. Calls beyond it get status 429."""

    def __post_init__(self) -> None:
        if (self.sha256 is None) == (self.env is None):
            raise ValueError("give either 'sha256' or 'env', the name of the variable that holds the token")


class Settings(Struct, frozen=True, kw_only=True):
    """All settings of ``fairsync serve``. `load_settings` reads them from a file.

    Examples
    --------
    >>> settings = parse_settings({"catalog": {"path": "items"}, "ledger": "memory://"})
    >>> settings.http.port, settings.promise.k, settings.is_open
    (8080, 20, True)
    """

    catalog: CatalogSettings = CatalogSettings()
    model: ModelSettings = ModelSettings()
    search: SearchSettings = SearchSettings()
    promise: PromiseSettings = PromiseSettings()
    promises: list[PromiseRecord] = []
    traffic: TrafficSettings = TrafficSettings()
    ledger: LedgerSettings = LedgerSettings()
    http: HttpSettings = HttpSettings()
    traces: TracesSettings = TracesSettings()
    tokens: list[TokenSettings] = []
    arms: list[ArmSettings] = []
    experiment: Annotated[str, Meta(pattern="^[a-z0-9_]{1,20}$")] = "test"
    """Name of the A/B test. Under another name users are divided again, and the ledgers are new."""

    def __post_init__(self) -> None:
        self._check_items()
        if self.arms:
            check_shares([arm.name for arm in self.arms], [arm.share for arm in self.arms])
        names = [token.name for token in self.tokens]
        if len(set(names)) < len(names):
            raise ValueError("two tokens have the same name: give each its own, it is what the log shows")
        if self.is_open and not is_loopback(self.http.host):
            raise ValueError(
                f"http.host is {self.http.host!r}, which others can reach, and there are no [[tokens]]: add at least"
                " one, or listen on 127.0.0.1"
            )
        if self.promise.k > self.http.max_k:
            raise ValueError(f"promise.k is {self.promise.k}, above http.max_k = {self.http.max_k}: raise the latter")
        if self.promise.k > self.http.max_candidates:
            raise ValueError(f"promise.k is {self.promise.k}, above http.max_candidates: raise the latter")

    def _check_items(self) -> None:
        """Refuse items that are nowhere, or in two places."""
        search = self.search
        if self.catalog.path is not None:
            if search.attributes or search.filters:
                raise ValueError(
                    "search.attributes and search.filters are for items that only an engine holds: leave them out, or"
                    " [catalog]"
                )
        elif search.engine not in ("pgvector", "qdrant", "milvus"):
            raise ValueError(
                "catalog.path: is missing. It names the items, unless only an engine holds them (search.engine and"
                " search.attributes)"
            )
        elif not search.attributes:
            raise ValueError(
                "there is no [catalog], so that only the engine holds the items: name in search.attributes those that"
                " promises may speak of, or give catalog.path"
            )
        elif self.arms:
            raise ValueError("[[arms]] compare what users were shown, which needs a [catalog]")

    @property
    def is_open(self) -> bool:
        """Whether calls need no token."""
        return not self.tokens

    @property
    def warnings(self) -> list[str]:
        """What works otherwise than it is likely to be meant.

        Examples
        --------
        >>> parse_settings({"catalog": {"path": "items"}, "model": {"path": "model"}}).warnings[0][:60]
        'Histories are left out of their answers, and promise.max_exc'
        """
        if self.model.path is None or self.promise.max_exclude:
            return []
        return [
            "Histories are left out of their answers, and promise.max_exclude is 0: promises can count on a"
            " request only if its history leaves enough items of each. Set max_exclude to the number of items that"
            " histories name at most."
        ]


@lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a host.

    Examples
    --------
    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "example.org")]
    [True, True, True, False, False]
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def parse_settings(given: Mapping[str, Any], origins: Mapping[Key, str] | None = None) -> Settings:
    """Return the settings that a mapping of sections describes.

    Parameters
    ----------
    given
        Sections, as in the TOML file. Dates and paths may be objects.
    origins
        Names of environment variables, for keys that do not come from the file.
    """
    return parse_struct(Settings, _with_sections(msgspec.to_builtins(given, enc_hook=str)), origins)


def load_settings(path: str | os.PathLike[str], environ: Mapping[str, str] | None = None) -> Settings:
    r"""Read a TOML file. Environment variables override it: FAIRSYNC_HTTP_PORT replaces ``port`` in ``[http]``.

    Relative paths in the file start at its folder.

    Parameters
    ----------
    path
        Path of the file.
    environ
        Environment variables. Defaults to those of the process.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "service.toml"
    ...     _ = path.write_text('[catalog]\npath = "items"\n[http]\nport = 8000\n')
    ...     load_settings(path, {"FAIRSYNC_HTTP_PORT": "9000"}).http.port
    9000
    """
    file = Path(path)
    given = _with_sections(_read_toml(file))
    origins: dict[Key, str] = {}
    for section, key, variable, value in _overrides(os.environ if environ is None else environ):
        if not isinstance(given.setdefault(section, {}), dict):
            raise InvalidInputError(f"{file}: '{section}' must be a section, written [{section}].")
        given[section][key] = value
        origins[section, key] = variable
    try:
        settings = parse_settings(given, origins)
    except InvalidInputError as error:
        raise InvalidInputError(f"{file}: {error}") from None
    return _resolve_paths(settings, file.resolve().parent)


def _with_sections(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sections with the short form of the ledger's written out."""
    ledger = given.get("ledger")
    return {**given, "ledger": {"url": ledger}} if isinstance(ledger, str) else dict(given)


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidInputError(f"there is no file {file}: {_WANTED}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{file} is not TOML ({error}): {_WANTED}.") from error
    except OSError as error:
        raise InvalidInputError(f"{file} cannot be read ({error.strerror}): {_WANTED}.") from error


def _overrides(environ: Mapping[str, str]) -> list[tuple[str, str, str, str]]:
    """Return (section, key, variable, value) of each variable that overrides a key; refuse misspelled ones."""
    sections = {
        field.name: field.type
        for field in msgspec.structs.fields(Settings)
        if isinstance(field.type, type) and issubclass(field.type, Struct)
    }
    known = {
        f"{PREFIX}{section}_{field.name}".upper(): (section, field.name)
        for section, kind in sections.items()
        for field in msgspec.structs.fields(kind)
    }
    prefixes = tuple(f"{PREFIX}{section}_".upper() for section in sections)
    found = []
    for variable, value in sorted(environ.items()):
        if variable in known:
            found.append((*known[variable], variable, value))
        elif variable.startswith(prefixes):
            close = get_close_matches(variable, known, n=1)
            hint = f"did you mean {close[0]}?" if close else "unset it."
            raise InvalidInputError(f"the environment variable {variable} names no setting: {hint}")
    return found


def _resolve_paths(settings: Settings, folder: Path) -> Settings:
    """Return the settings with absolute paths, which do not depend on the working directory."""
    changed: dict[str, Struct] = {}
    for section in ("catalog", "model"):
        part = getattr(settings, section)
        if part.path is not None:
            changed[section] = msgspec.structs.replace(part, path=folder / part.path.expanduser())
    url = settings.ledger.url
    if url != MEMORY and not is_postgres(url):
        path = folder / sqlite_path(url).expanduser()
        changed["ledger"] = msgspec.structs.replace(settings.ledger, url=f"sqlite:///{quote(str(path))}")
    search = settings.search
    if search.engine in ("qdrant", "milvus") and "://" not in search.url and search.url != ":memory:":  # a path
        changed["search"] = msgspec.structs.replace(search, url=str(folder / Path(search.url).expanduser()))
    return msgspec.structs.replace(settings, **changed)
