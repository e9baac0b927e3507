"""Check a configuration without starting the service: what it means, and whether its promises can be kept."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fairsync.cold_start.cold_start import ColdStart
from fairsync.errors import FairSyncError
from fairsync.ledger.urls import describe_url
from fairsync.policies import make_policy
from fairsync.promises.floors import make_terms
from fairsync.schedule import check_promise
from fairsync.service.arms.arm_settings import settings_of_arms
from fairsync.service.catalog_settings import describe_items, open_items
from fairsync.service.ledger_settings import check_writable, describe_ledger, read_groups
from fairsync.service.promises.conversion import promises_from_records
from fairsync.service.promises.planning import alike, supply_of
from fairsync.service.promises.promise_series import promises_of
from fairsync.service.search_settings import describe_search
from fairsync.service.server.access_control import Tokens
from fairsync.service.server.histories import load_histories

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fairsync.catalog import Catalog
    from fairsync.schedule import Feasibility, ScheduledPromise
    from fairsync.service.settings import Settings


@dataclass(frozen=True)
class ConfigurationCheck:
    """The result of a check.

    Attributes
    ----------
    catalog : Catalog or None
        The items; None if they cannot be read.
    facts : dict
        What the configuration means, as a text by subject.
    problems : list of str
        Reasons why the service could not start or not keep its promises.
    warnings : list of str
        Risks that do not prevent a start.
    verdicts : list of Feasibility
        The feasibility of each promise of the file, beside all others.
    """

    catalog: Catalog | None
    facts: dict[str, str]
    problems: list[str]
    warnings: list[str]
    verdicts: list[Feasibility] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "facts": self.facts,
            "promises": [verdict.to_dict() for verdict in self.verdicts],
            "problems": self.problems,
            "warnings": self.warnings,
        }


def check_start(settings: Settings, environ: Mapping[str, str] | None = None) -> ConfigurationCheck:
    """Check what a start needs, by reading: items, engine, model, tokens, policies, promises, and the ledger's place.

    Whether promises can be kept is left out, because those that the ledger holds replace those of the settings.

    Parameters
    ----------
    settings, environ
        As for `check`.
    """
    facts, problems = _facts(settings), list[str]()
    parts = settings_of_arms(settings) if settings.arms else [settings]
    catalog: Catalog | None = None
    with _collecting(problems):
        catalog = open_items(settings)
        facts["catalog"] = describe_items(catalog)
    if catalog is not None:
        with _collecting(problems):
            promise = settings.promise
            make_terms(catalog, promise.k, 0, 1, promise.batch_size, max_exclude=promise.max_exclude)
        for part in parts:
            with _collecting(problems):
                promises_from_records(part.promises, read_groups(part, catalog))
        with _collecting(problems):
            load_histories(settings, catalog.dim)
        with _collecting(problems):
            ColdStart(catalog, settings.promise.cold)
    with _collecting(problems):
        facts["search"] = describe_search(settings.search, catalog)
    with _collecting(problems):
        Tokens(settings.tokens, environ)
    for part in parts:
        with _collecting(problems):
            make_policy(part.promise.policy)
        with _collecting(problems):
            check_writable(part.ledger.url)
    return ConfigurationCheck(catalog, facts, list(dict.fromkeys(problems)), settings.warnings)


def check(
    settings: Settings, environ: Mapping[str, str] | None = None, now: datetime | None = None
) -> ConfigurationCheck:
    """Check a configuration. Reads the catalog, the model and the ledger; writes nothing.

    Parameters
    ----------
    settings
        The settings to be checked.
    environ
        Environment variables, which may hold tokens. Defaults to those of the process.
    now
        The time at which the promises would begin. Defaults to the present.
    """
    start = check_start(settings, environ)
    catalog, facts, problems, warnings = start.catalog, start.facts, start.problems, start.warnings
    verdicts: list[Feasibility] = []
    if catalog is not None:
        with _collecting(problems):
            verdicts = _verdicts(settings, catalog, now or datetime.now(UTC), problems)
    with _collecting(problems):
        facts["ledger"], risks = describe_ledger(settings, catalog)
        warnings.extend(risks)
    problems = list(dict.fromkeys(problems))
    problems += [verdict.message for verdict in verdicts if not verdict.accepted]
    return ConfigurationCheck(catalog, facts, problems, warnings, verdicts)


# With more promises than this, one of each window, priority and kind of bounds is checked beside all others.
_MOST_CHECKED = 200


@contextmanager
def _collecting(problems: list[str]) -> Iterator[None]:
    """Record an error as a problem, so that the checks after it still run."""
    try:
        yield
    except (FairSyncError, OSError) as error:
        problems.append(str(error))


def _facts(settings: Settings) -> dict[str, str]:
    http, promise, search = settings.http, settings.promise, settings.search
    access = "no tokens: every process on this machine has full access"
    if settings.tokens:
        access = ", ".join(f"{one.name} ({'/'.join(one.roles)})" for one in settings.tokens)
    counted = {"retrieved": "retrieved candidates", "impressions": "reported impressions"}[promise.count]
    if not promise.count_cold:
        counted += ", without those of cold users"
    return {
        "address": f"http://{http.host}:{http.port}",
        "access": access,
        "search": search.engine,
        "promise": f"{promise.policy}, k = {promise.k}, exposures are {counted}, a request excludes"
        f" {promise.max_exclude:,} items at most",
        "traffic": f"{settings.traffic.per_second:g} a second until requests are observed",
        "ledger": describe_url(settings.ledger.url),
        "model": str(settings.model.path or "none: requests must contain vectors"),
    }


def _verdicts(settings: Settings, catalog: Catalog, now: datetime, problems: list[str]) -> list[Feasibility]:
    """Return the feasibility of each promise of the file. A promise that is invalid is a problem."""
    promises = promises_from_records(settings.promises, catalog)
    promises = [
        one
        for promise in promises
        for one in ([promise] if promise.promise.each is None else promises_of("", promise, catalog, now).values())
    ]
    selections = list(dict.fromkeys(promise.selection for promise in promises))
    supply = supply_of(catalog, selections, settings.promise.k, settings.promise.max_exclude)
    forecast = settings.traffic.forecast
    verdicts = []
    for promise in promises if len(promises) <= _MOST_CHECKED else _hardest(promises):
        with _collecting(problems):  # such as a campaign that is over
            verdicts.append(check_promise(promise, promises, {}, forecast, now, supply))
    return verdicts


def _hardest(promises: list[ScheduledPromise]) -> list[ScheduledPromise]:
    """Return one of each window, priority and kind of bounds, with the largest floor."""
    named = {str(place): promise for place, promise in enumerate(promises)}
    return [named[names[0]] for names in alike(named)]
