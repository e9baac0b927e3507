"""A service that shares its promises with others on a Redis server: what stands there, and how it joins."""

from __future__ import annotations

import os
import socket
from contextlib import closing
from importlib.util import find_spec
from typing import TYPE_CHECKING

from fairsync.errors import InvalidInputError
from fairsync.service.promises.saved_state import SavedState

if TYPE_CHECKING:
    from fairsync.catalog import Catalog
    from fairsync.coordination.redis import RedisCoordinator
    from fairsync.coordination.redis.store import RedisStore
    from fairsync.service.settings import Settings

# Whoever only looks does not wait for longer, in seconds.
_GLANCE_SECONDS = 3.0
# Promises that are named; of more, the number is told.
_MOST_NAMED = 5


def join(settings: Settings, catalog: Catalog) -> tuple[Catalog, RedisCoordinator]:
    """Return the coordinator of one of several services, and the catalog with its groups in the order of all.

    Since the promise was made groups may have come, which follow the others, or gone, which stay without items: counts
    and promises are theirs all the same.
    """
    url = _url_of(settings)
    from fairsync.coordination.redis import RedisCoordinator

    promise, ledger, http = settings.promise, settings.ledger, settings.http
    # Calls may have to wait for a replica that died, or for the server: for less than their own time.
    patience = http.request_seconds / 2
    with closing(_open(url, ledger.name, patience)) as store:
        fitted = _fitted(catalog, store)
    return fitted, RedisCoordinator(
        url,
        fitted,
        k=promise.k,
        policy=promise.policy,
        batch_size=promise.batch_size,
        name=ledger.name,
        replica=f"{socket.gethostname()}:{http.port or os.getpid()}",
        lease_seconds=patience,
        timeout=patience,
        horizon=1,
        auto_restart=False,
    )


def describe_server(settings: Settings) -> tuple[str, list[str]]:
    """Return what stands on the server, in words, and why it may be lost; writes nothing."""
    with closing(_glance(settings)) as store:
        words = f"redis, {store.address} answers; shared under the name {store.name!r}: {_standing(store)}"
        return words, store.doubts()


def check_agrees(settings: Settings, catalog: Catalog) -> None:
    """Refuse settings with which the service could not join those that keep the promise on the server."""
    from fairsync.coordination.redis.terms import SharedTerms
    from fairsync.floors import make_terms
    from fairsync.policies import make_policy

    wanted = settings.promise
    with closing(_glance(settings)) as store:
        totals = SharedTerms.on(store)
        if totals is not None:
            fitted = _fitted(catalog, store)
            terms = make_terms(fitted, wanted.k, 0, 1, wanted.batch_size, auto_restart=False)
            mine = SharedTerms.of(0, fitted.groups, terms, make_policy(wanted.policy).keeps_floors)
            mine.check_agrees(totals, store)


def _standing(store: RedisStore) -> str:
    from fairsync.coordination.redis.terms import SharedTerms

    seen, promise = store.read(), SharedTerms.on(store)
    if promise is None:
        return "exposures of a service that was alone" if seen is not None and seen.fields else "nothing yet"
    notes = SavedState.load(store)  # type: ignore[arg-type]  # it only asks for what is kept
    made = [] if notes is None else [str(one) for one in notes.promises.values()]
    named = "; ".join(made[:_MOST_NAMED]) + (f"; and {len(made) - _MOST_NAMED} more" if len(made) > _MOST_NAMED else "")
    leader = store.ask(lambda client: client.get(store.key("lead")))
    leads = f"{leader.decode().split()[0]} leads" if isinstance(leader, bytes) else "nobody leads"
    return f"{len(promise.groups.labels):,} groups, k = {promise.k}, {named or 'no promises'}; {leads}"


def _fitted(catalog: Catalog, store: RedisStore) -> Catalog:
    from fairsync.coordination.redis.terms import SharedTerms

    totals = SharedTerms.on(store)
    if totals is None or catalog.labels == totals.groups.labels:
        return catalog
    return catalog.under(totals.groups.labels)


def _glance(settings: Settings) -> RedisStore:
    return _open(_url_of(settings), settings.ledger.name, _GLANCE_SECONDS)


def _open(url: str, name: str, timeout: float) -> RedisStore:
    from fairsync.coordination.redis.store import RedisStore

    return RedisStore(url, name, timeout)


def _url_of(settings: Settings) -> str:
    if find_spec("redis") is None:
        raise InvalidInputError("ledger.kind is 'redis', but its client is missing: pip install 'fairsync[redis]'.")
    assert settings.ledger.url is not None, "settings were checked"
    return settings.ledger.url
