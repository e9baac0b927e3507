"""What a configuration means, and whether its promises can be kept, found out without starting anything."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fairsync.catalog.files import open_catalog
from fairsync.errors import FairSyncError
from fairsync.floors import group_caps
from fairsync.inputs import check_k
from fairsync.ledger.sqlite_files import look
from fairsync.policies import make_policy
from fairsync.schedule import check_promise
from fairsync.service import sharing
from fairsync.service.promises.conversion import promise_from_record
from fairsync.service.run import make_forecast
from fairsync.service.server.auth import Tokens
from fairsync.service.server.histories import load_histories

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from fairsync.catalog import Catalog
    from fairsync.schedule import Feasibility
    from fairsync.service.settings import Settings


@dataclass(frozen=True)
class ConfigurationCheck:
    """What was found.

    Attributes
    ----------
    facts : dict
        What will be, in words, by subject.
    verdicts : list of Feasibility
        On each promise, beside all others.
    problems : list of str
        What has to be mended before the service can start or keep its promises.
    warnings : list of str
        What should be.
    """

    facts: dict[str, str]
    verdicts: list[Feasibility]
    problems: list[str]
    warnings: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "facts": self.facts,
            "promises": [verdict.to_dict() for verdict in self.verdicts],
            "problems": self.problems,
            "warnings": self.warnings,
        }


def check(
    settings: Settings, environ: Mapping[str, str] | None = None, now: datetime | None = None
) -> ConfigurationCheck:
    """Find out what a configuration means. Reads catalog and model, and looks at the server; writes nothing.

    Parameters
    ----------
    settings
        To be checked.
    environ
        The variables; those of the process unless given.
    now
        When; the present moment unless given.
    """
    problems: list[str] = []
    warnings: list[str] = []
    facts = _facts(settings)
    verdicts: list[Feasibility] = []
    catalog = None
    try:
        catalog = open_catalog(settings.catalog.path)
        facts["catalog"] = f"{len(catalog):,} items, {catalog.n_groups:,} groups, dimension {catalog.dim}"
        check_k(settings.promise.k, catalog)
        verdicts = _verdicts(settings, catalog, now or datetime.now(UTC), problems)
        load_histories(settings, catalog.dim)
    except (FairSyncError, OSError) as error:
        problems.append(str(error))

    def look_at_ledger() -> None:
        if settings.ledger.kind == "redis":
            facts["ledger"], doubts = sharing.refresh(settings)
            warnings.extend(doubts)
            if catalog is not None:
                sharing.check_agrees(settings, catalog)
        elif settings.ledger.path is not None:
            facts["ledger"] += f", {_look_at_file(settings.ledger.path)}"

    for attempt in (
        lambda: Tokens(settings.tokens, environ),
        lambda: make_policy(settings.promise.policy),
        look_at_ledger,
    ):
        try:
            attempt()
        except FairSyncError as error:
            problems.append(str(error))
    problems = list(dict.fromkeys(problems))
    problems += [verdict.message for verdict in verdicts if not verdict.accepted]
    return ConfigurationCheck(facts, verdicts, problems, warnings)


def _facts(settings: Settings) -> dict[str, str]:
    http, promise, ledger, search = settings.http, settings.promise, settings.ledger, settings.search
    access = "no tokens: anybody on this machine may do anything"
    if settings.tokens:
        access = ", ".join(f"{one.name} ({'/'.join(one.roles)})" for one in settings.tokens)
    where = {"memory": "in memory: gone when the service ends", "sqlite": f"sqlite, {ledger.path}"}
    shards = f"Ray shards {search.ray!r}" if search.ray else f"{search.index}, {search.shards} shard(s)"
    return {
        "address": f"http://{http.host}:{http.port}",
        "access": access,
        "search": shards,
        "promise": f"{promise.policy}, k = {promise.k}, counting what is {promise.count}",
        "traffic": f"{settings.traffic.per_second:g} requests a second expected before any was seen",
        "ledger": where.get(ledger.kind, f"redis, shared under the name {ledger.name!r}"),
        "model": str(settings.model.path or "none: requests bring vectors"),
    }


def _verdicts(settings: Settings, catalog: Catalog, now: datetime, problems: list[str]) -> list[Feasibility]:
    promises = [promise_from_record(record, catalog) for record in settings.promises]
    k = settings.promise.k
    caps = dict(zip(catalog.labels, group_caps(catalog, k).tolist(), strict=True))
    forecast = make_forecast(settings)
    verdicts = []
    for promise in promises:
        try:
            verdicts.append(check_promise(promise, promises, {}, forecast, now, k, caps))
        except FairSyncError as error:  # such as a campaign that is over
            problems.append(str(error))
    return verdicts


def _look_at_file(path: Path) -> str:
    """Return what the ledger's file holds; refuse one that the service could not use."""
    if not path.parent.is_dir():
        raise FairSyncError(f"ledger.path is {path}, but there is no folder {path.parent}: make it, or name another.")
    there = path if path.exists() else path.parent
    if not os.access(there, os.W_OK):
        raise FairSyncError(f"ledger.path is {path}, but {there} cannot be written to: name another.")
    if there is not path:
        return "not there yet"
    known = look(path)
    return (
        f"{known.requests:,} requests so far, {known.groups:,} groups; promises are those it has, not those of the file"
    )
