"""The settings of each arm: its part of promises and traffic, and a ledger of its own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import msgspec

from fairsync.errors import InvalidInputError
from fairsync.ledger.urls import MEMORY, is_postgres, sqlite_path
from fairsync.service.arms.assignment import Assignment
from fairsync.service.arms.pro_rata import split_promise

if TYPE_CHECKING:
    from fairsync.service.promises.promise_service import PromiseService
    from fairsync.service.settings import Settings

# Name under which each arm's ledger saves to which arms it belongs.
_NAME = "arms"


def make_assignment(settings: Settings) -> Assignment:
    """Return the assignment of users to the arms of the settings."""
    arms = settings.arms
    return Assignment(settings.experiment, [arm.name for arm in arms], [arm.share for arm in arms])


def settings_of_arms(settings: Settings) -> list[Settings]:
    """Return the settings of each arm, in order.

    Numbers of exposures are split so that the parts of all arms add up to the whole. The URL of the ledger gets the
    names of the experiment and the arm: a file ``exposures.db`` becomes ``exposures.november.control.db``, the schema
    ``fairsync`` becomes ``fairsync_november_control``.
    """
    shares = make_assignment(settings).shares
    parts = [split_promise(promise, shares, turn) for turn, promise in enumerate(settings.promises)]
    return [
        msgspec.structs.replace(
            settings,
            arms=[],
            promises=[part[number] for part in parts if part[number] is not None],
            ledger=msgspec.structs.replace(
                settings.ledger, url=arm_url(settings.ledger.url, settings.experiment, arm.name)
            ),
            traffic=msgspec.structs.replace(settings.traffic, per_second=settings.traffic.per_second * arm.share),
            promise=msgspec.structs.replace(
                settings.promise,
                policy=arm.policy or settings.promise.policy,
                batch_size=arm.batch_size or settings.promise.batch_size,
            ),
        )
        for number, arm in enumerate(settings.arms)
    ]


def arm_url(url: str, experiment: str, arm: str) -> str:
    """Return the URL of an arm's ledger.

    Examples
    --------
    >>> arm_url("sqlite:///exposures.db", "november", "control")
    'sqlite:///exposures.november.control.db'
    >>> arm_url("postgresql://db/shop?schema=shop", "november", "control")
    'postgresql://db/shop?schema=shop_november_control'
    """
    if url == MEMORY:
        return url
    if is_postgres(url):
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query))
        query["schema"] = f"{query.get('schema', 'fairsync')}_{experiment}_{arm}"
        return urlunsplit(parts._replace(query=urlencode(query)))
    path = sqlite_path(url)
    named = path.with_name(f"{path.stem}.{experiment}.{arm}{path.suffix}")
    return f"sqlite:///{quote(str(named))}"


def check_same_arms(service: PromiseService, assignment: Assignment) -> None:
    """Refuse a ledger of other arms in the middle of its windows: what users got before belongs to other promises.

    Parameters
    ----------
    service
        The service of one arm.
    assignment
        The arms of the settings.
    """
    ledger, mine = service.coordinator.ledger, json.dumps(assignment.to_dict()).encode()
    saved = ledger.load(_NAME)
    if saved is not None and saved != mine:
        now, before = service.scheduler.now(), json.loads(saved)
        spans = [promise.window.at(now) for promise in service.scheduler.state.promises.values()]
        ends = [span.end for span in spans if span is not None]
        if ends:
            raise InvalidInputError(
                f"the experiment {before['experiment']!r} has the arms {before['arms']}, and windows under way until"
                f" {max(ends):%Y-%m-%d %H:%M} UTC: arms cannot be changed in the middle of a window. Give the new arms"
                ' another name (experiment = "..."): it gets ledgers of its own, best at the start of a window.'
            )
    if saved != mine:
        ledger.save(_NAME, mine)
