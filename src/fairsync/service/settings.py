"""Settings of the service: one TOML file, environment variables on top, every key checked before anything starts."""

from __future__ import annotations

import ipaddress
import os
import tomllib
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, InstanceOf, ValidationError, model_validator

from fairsync.errors import InvalidInputError
from fairsync.schedule import WORST_CASE_TRAFFIC
from fairsync.service.schema import PromiseRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "FAIRSYNC_"
Role = Literal["retrieve", "report", "admin"]
Positive = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class CatalogSettings(_Section):
    """The items."""

    path: Path
    """A folder that ``save_catalog`` wrote, or a .parquet file (id, group, embedding)."""


class ModelSettings(_Section):
    """What turns histories into vectors; without it, only vectors can be asked with."""

    path: Path | None = None
    """A folder that ``fairsync train`` wrote."""


class SearchSettings(_Section):
    """How items are searched."""

    index: Literal["exact", "ivf", "hnsw", "one-hot"] = "exact"
    threads: Positive | None = None
    """Of an exact search; as many as there are processors unless given."""
    shards: Positive = 1
    """Parts of the catalog that are searched side by side in this process."""
    ray: str | None = None
    """Name of shards on a Ray cluster that ``fairsync cluster start`` started; takes the place of the above."""
    ray_address: str = "auto"


class PromiseSettings(_Section):
    """How promises are kept."""

    k: Positive = 20
    """Candidates per request."""
    batch_size: Positive = 64
    """Requests between two price changes, at most."""
    count: Literal["retrieved", "impressions"] = "retrieved"
    """What an exposure is: a candidate, or what was reported as shown."""
    policy: str = "guaranteed"


class TrafficSettings(_Section):
    """What is expected as long as nothing was seen."""

    per_second: Annotated[float, Field(ge=0, le=1e9)] = 1.0
    zone: str = "UTC"
    """IANA time zone by whose clock people live."""
    worst_case: Annotated[float, Field(gt=0, le=1)] = WORST_CASE_TRAFFIC
    """The part of the expected traffic that plans count on: the smaller, the earlier in a window floors are served."""


class LedgerSettings(_Section):
    """Where exposures are recorded."""

    kind: Literal["memory", "sqlite", "redis"] = "sqlite"
    path: Path | None = None
    """Of the sqlite file."""
    url: str | None = None
    """Of the Redis or Valkey server, such as ``redis://localhost:6379/0``."""
    name: str = "fairsync"
    """Services that share a server and a name share their promises."""

    @model_validator(mode="after")
    def _is_complete(self) -> LedgerSettings:
        if self.kind == "sqlite" and self.path is None:
            raise ValueError("kind is 'sqlite', so 'path' must say where the file is to be")
        if self.kind == "redis" and self.url is None:
            raise ValueError("kind is 'redis', so 'url' must say where the server is")
        return self


class HttpSettings(_Section):
    """Where the service listens, and what it takes at most."""

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8080
    max_body_bytes: Annotated[int, Field(ge=1_000)] = 16_000_000
    max_k: Positive = 1_000
    max_users: Positive = 1_024
    """Requests in one call."""
    max_interests: Positive = 16
    """Vectors of one user."""
    max_candidates: Positive = 100_000
    """Requests of one call times k."""
    max_items: Positive = 10_000
    """Items in one change of the catalog, and reports in one call."""
    max_batch: Positive = 256
    """Requests that are gathered into one search."""
    max_waiting: Positive = 4_096
    """Requests that may wait for the search; more are turned away at once."""
    max_wait_seconds: Seconds = 2.0
    """Whoever would wait longer for the search than this is turned away at once."""
    max_connections: Positive = 4_096
    request_seconds: Seconds = 10.0
    """Within which a call is answered or given up."""
    drain_seconds: Annotated[float, Field(ge=0, le=86_400)] = 0.0
    """Between the signal to stop and the end of answers: /ready says no meanwhile, so that others are asked instead."""
    shutdown_seconds: Seconds = 20.0
    """That calls in flight have to finish when the service is stopped."""
    log: Literal["all", "problems"] = "all"
    """Which calls get a line in the log."""


class TokenSettings(_Section):
    """Who may do what. The token itself is never written down: its SHA-256 is, or the variable that holds it."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    roles: Annotated[list[Role], Field(min_length=1)]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    env: str | None = None
    per_second: Annotated[float, Field(gt=0, le=1e9)] | None = None
    """Requests, on average; beyond it calls are turned away with 429."""

    @model_validator(mode="after")
    def _has_one(self) -> TokenSettings:
        if (self.sha256 is None) == (self.env is None):
            raise ValueError("give either 'sha256' or 'env', the name of the variable that holds the token")
        return self


def _promise_record(given: Any) -> PromiseRecord:
    """Return a promise of the file as the API has it: dates and times as text."""
    return msgspec.convert(msgspec.to_builtins(given), PromiseRecord)


class Settings(_Section):
    """Everything that ``fairsync serve`` needs to know. `load_settings` reads it.

    Examples
    --------
    >>> settings = Settings.model_validate({"catalog": {"path": "items"}, "ledger": {"kind": "memory"}})
    >>> settings.http.port, settings.promise.k, settings.is_open
    (8080, 20, True)
    """

    catalog: CatalogSettings
    model: ModelSettings = ModelSettings()
    search: SearchSettings = SearchSettings()
    promise: PromiseSettings = PromiseSettings()
    promises: list[Annotated[InstanceOf[PromiseRecord], BeforeValidator(_promise_record)]] = []
    traffic: TrafficSettings = TrafficSettings()
    ledger: LedgerSettings = LedgerSettings(path=Path("fairsync.db"))
    http: HttpSettings = HttpSettings()
    tokens: list[TokenSettings] = []

    @model_validator(mode="after")
    def _is_sound(self) -> Settings:
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
        return self

    @property
    def is_open(self) -> bool:
        """Whether anybody may do anything."""
        return not self.tokens


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


def load_settings(path: str | os.PathLike[str], environ: Mapping[str, str] | None = None) -> Settings:
    r"""Read a TOML file, with environment variables on top: FAIRSYNC_HTTP_PORT stands for ``port`` in ``[http]``.

    Paths in the file are meant from its own folder.

    Parameters
    ----------
    path
        Of the file.
    environ
        The variables; those of the process unless given.

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
    try:
        given = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidInputError(f"there is no file {file}: see docs/service.md for what it should hold.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{file} is not TOML: {error}.") from error
    except OSError as error:
        raise InvalidInputError(f"{file} cannot be read ({error.strerror}): name a TOML file.") from error
    laid_over = _from_environment(os.environ if environ is None else environ)
    for section, key, value in laid_over:
        if not isinstance(given.setdefault(section, {}), dict):
            raise InvalidInputError(f"{file}: '{section}' must be a section, written [{section}].")
        given[section][key] = value
    try:
        settings = Settings.model_validate(given)
    except ValidationError as error:
        names: dict[tuple[int | str, ...], str] = {
            (section, key): f"{PREFIX}{section}_{key}".upper() for section, key, _ in laid_over
        }
        raise InvalidInputError(f"{file}: {_in_words(error, names)}") from None
    return _from_folder(settings, file.resolve().parent)


def _sections() -> dict[str, type[BaseModel]]:
    kinds = {name: field.annotation for name, field in Settings.model_fields.items()}
    return {name: kind for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, BaseModel)}


def _from_environment(environ: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return (section, key, value) of each variable that is meant for us; refuse those that miss by a letter."""
    known = {
        f"{PREFIX}{section}_{key}".upper(): (section, key)
        for section, kind in _sections().items()
        for key in kind.model_fields
    }
    starts = tuple(f"{PREFIX}{section}_".upper() for section in _sections())
    found = []
    for name, value in sorted(environ.items()):
        if name in known:
            found.append((*known[name], value))
        elif name.startswith(starts):
            close = get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}?" if close else "unset it."
            raise InvalidInputError(f"the environment variable {name} names no setting: {hint}")
    return found


def _in_words(error: ValidationError, variables: Mapping[tuple[int | str, ...], str]) -> str:
    """Return each mistake with the key or variable it is in; for a key that is unknown, the one that may be meant."""
    lines = []
    for one in error.errors(include_url=False):
        where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in one["loc"]).lstrip(".")
        if one["loc"] in variables:
            where += f", set by {variables[one['loc']]}"
        if one["type"] == "extra_forbidden":
            close = get_close_matches(str(one["loc"][-1]), _keys_beside(one["loc"]), n=1)
            what = "is not a setting" + (f"; did you mean '{close[0]}'?" if close else ": remove it")
        elif one["type"] == "missing":
            what = "is missing: add it"
        else:
            # What was given may be a secret put under the wrong key, so it is not repeated.
            what = one["msg"].removeprefix("Value error, ")
        lines.append(f"{where}: {what}" if where else what)
    text = "; ".join(lines)
    return text if text.endswith("?") else f"{text}."


def _keys_beside(place: tuple[int | str, ...]) -> list[str]:
    kind: Any = Settings
    for part in place[:-1]:
        if isinstance(part, str) and part in getattr(kind, "model_fields", {}):
            annotation = kind.model_fields[part].annotation
            kind = getattr(annotation, "__args__", (annotation,))[0]
    return list(getattr(kind, "model_fields", {}))


def _from_folder(settings: Settings, folder: Path) -> Settings:
    """Return the settings with paths that do not depend on where the process was started."""
    changed: dict[str, BaseModel] = {}
    for section in ("catalog", "model", "ledger"):
        part = getattr(settings, section)
        if part.path is not None:
            changed[section] = part.model_copy(update={"path": folder / part.path.expanduser()})
    return settings.model_copy(update=changed)
