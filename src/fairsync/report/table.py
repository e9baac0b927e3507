"""A report as a table for the terminal, sorted by need."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table
from rich.text import Text

from fairsync.report.columns import Column, fitting
from fairsync.text import count, percent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import RenderableType

    from fairsync.catalog.groups import Label
    from fairsync.report.report import Report, Status

_ALL = 40  # up to this number of groups, every group has a row
_FEW, _SOME = 10, 24  # minimum and maximum number of rows if there are more groups
_LONGEST_NAME = 32  # width in characters
_BAR = 12  # width in characters
_EIGHTHS = " ▏▎▍▌▋▊▉"
_ORDER: tuple[Status, ...] = ("exceeded", "missed", "gave way", "behind", "on track", "kept", "no promise")
_OUTLOOKS = {"missed": "bold red", "will miss": "bold red", "at risk": "yellow", "expected": "cyan", "certain": "green"}
_ROUNDING = 1e-12  # of a sum of relevance
_REASONS = 5  # promises of which the reason is given below the table
_STYLES = {
    "exceeded": "bold red",
    "missed": "bold red",
    "gave way": "magenta",
    "behind": "yellow",
    "on track": "cyan",
    "kept": "green",
    "no promise": "dim",
}


def render(report: Report, width: int) -> Iterator[RenderableType]:
    """Yield the table, the key figures and a summary of a report, for a terminal of this width."""
    ordered = by_need(report)
    visible = ordered if len(ordered) <= _ALL else ordered[: _rows(report)]
    title = f"policy {report.policy} · k {report.k} · prices renewed every {count(report.batch_size, 'request')}"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    columns = fitting(list(_columns(report, visible)), width)
    for place, column in enumerate(columns):
        table.add_column(
            column.heading,
            justify="right" if column.is_number else "left",
            no_wrap=place > 0,
            overflow="ellipsis",
            max_width=_LONGEST_NAME if place == 0 else None,
            min_width=None if place == 0 else column.width,
        )
    for cells in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*cells)
    yield table
    if len(visible) < len(ordered):
        yield Text(_left_out(report, ordered[len(visible) :]) + "\n", style="dim")
    yield Text(" · ".join(summary(report)), style="bold")
    yield Text(reading(report))
    for line in reasons(report):
        yield Text(line)


def _columns(report: Report, labels: Sequence[Label]) -> Iterator[Column]:
    """Yield the columns of the table. On a narrow terminal the bars go first, costs last."""
    floors, exposures = report.floors, report.exposures
    caps = {label: cap for label, cap in (report.caps or {}).items() if label in set(labels)}
    styles = [_STYLES[report.status[label]] for label in labels]

    def shares(draw: Callable[[int, int], str]) -> list[Text]:
        return [Text(draw(exposures[label], floors[label]), style) for label, style in zip(labels, styles, strict=True)]

    def of_promises(text: Callable[[Label], str]) -> list[str]:
        return [text(label) if label in report.promised_set else "" for label in labels]

    yield Column(report.noun, [Text(str(label)) for label in labels], is_number=False)
    yield Column("floor", [f"{floors[one]:,}" if floors[one] or report.caps is None else "" for one in labels])
    if caps:
        yield Column("cap", [f"{caps[label]:,}" if label in caps else "" for label in labels])
    if any(label in report.list_limits for label in labels):
        yield Column(
            "per list", [f"{report.list_limits[label]:,}" if label in report.list_limits else "" for label in labels]
        )
    yield Column("exposures", [f"{exposures[label]:,}" for label in labels])
    short = Column("share", shares(share_text), dispensable=2)
    yield Column("share of floor", shares(share_bar), is_number=False, dispensable=6, short=short)
    yield Column("price", [price_text(report.prices[label]) for label in labels], dispensable=3)
    if (means := report.mean_subsidies) is not None:
        costs = report.costs
        yield Column("mean subsidy", of_promises(lambda one: price_text(means.get(one, 0.0))), dispensable=5)
        spent = of_promises(lambda one: "–" if costs is None else _share(report, costs[one]))
        yield Column("cost", spent, dispensable=1)
    if (outlooks := report.outlooks) is not None:
        could = [percent(outlooks[label].share) if label in outlooks else "" for label in labels]
        yield Column("could show", could, dispensable=4)
    yield Column("status", [_standing(report, label) for label in labels], is_number=False)


def reasons(report: Report) -> list[str]:
    """Return how many requests floors could not count on, and which promises are at risk or missed by that."""
    lines, found = [], report.outlooks or {}
    if report.uncertain:
        some = ", ".join(map(str, report.uncertain[:_REASONS])) + (" and others" * (len(report.uncertain) > _REASONS))
        lines.append(f"Expected, not certain, because a request may exclude all items they rest on: {some}.")
    because = {label for label, one in found.items() if one.reason}  # the outlook says more than "cannot be kept"
    yielding = [
        label
        for label, one in report.gave_way.items()
        if not report.satisfied[label] and (one.to or one.reason != "capacity" or label not in because)
    ]
    lines += [f"{label} {report.gave_way[label].text(is_over=report.is_over)}." for label in yielding[:_REASONS]]
    if len(yielding) > _REASONS:
        lines.append(f"{count(len(yielding) - _REASONS, 'more promise')} gave way.")
    if report.outlooks is None:
        return lines
    if report.limited_requests:
        limited = count(report.limited_requests, "request")
        past = report.esp == 1 or report.is_over
        known = "were not certain in advance" if past else "that are not reached yet are not certain"
        why = "could not show what floors count on, because of what they excluded or required"
        lines.append(f"{limited} {why}: floors {known}.")
    worst = sorted(
        because,
        key=lambda label: (found[label].outlook == "at risk", -found[label].shortfall),
    )
    verbs = {"missed": "was missed", "will miss": "will be missed", "at risk": "is at risk"}
    lines += [f"{label} {verbs[found[label].outlook]}: {found[label].reason}." for label in worst[:_REASONS]]
    if len(worst) > _REASONS:
        one = len(worst) == _REASONS + 1
        are = ("was" if one else "were") if report.is_over else ("is" if one else "are")
        lines.append(f"So {are} {len(worst) - _REASONS:,} more.")
    return lines


def by_need(report: Report) -> list[Label]:
    """Return the labels sorted by status (worst first), then subsidised first, then by share of the floor reached."""

    def need(label: Label) -> tuple[int, bool, float]:
        floor = report.floors[label]
        share = report.exposures[label] / floor if floor else math.inf
        return _ORDER.index(report.status[label]), report.prices[label] >= 0, share

    return sorted(report.floors, key=need)


def _rows(report: Report) -> int:
    """Return the number of rows: the groups below their floor or subsidised, within limits."""
    notable = sum(
        status in ("missed", "behind", "on track", "gave way") or report.prices[label] < 0
        for label, status in report.status.items()
    )
    return min(max(notable, _FEW), _SOME)


def summary(report: Report) -> list[str]:
    """Return the key figures as short texts."""
    promises = len(report.promised)
    figures = [
        f"ESP {report.esp:.1%} ({report.n_kept:,} of {count(promises, 'promise')})" if promises else "no promises",
        f"{report.requests:,} of {count(report.horizon, 'request')}",
        _cost(report),
    ]
    if report.cost_ratio is not None:
        figures.append(
            f"{report.cost_ratio:.2f} × hindsight" if report.cost_ratio < math.inf else "hindsight gives up nothing"
        )
    return [*figures, f"guard forced {report.forced:,} of {count(report.requests * report.k, 'slot')}"]


def reading(report: Report) -> str:
    """Return the progress of the horizon in one or two sentences."""
    short = [missing for missing in report.missing.values() if missing]
    lacking = f"{count(sum(short), 'exposure')} in {count(len(short), report.noun)}"
    left = report.horizon - report.requests
    every = "floor" if report.caps is None else "promise"
    exceeded = sum(status == "exceeded" for status in report.status.values())
    if not report.promised:
        return "No group has a floor." if report.caps is None else "There are no promises."
    if report.is_over:
        was = "was" if sum(short) == 1 else "were"
        words = (
            f"The horizon is over, and {lacking} {was} missed."
            if short
            else f"The horizon is over; every {every} was kept."
            if not exceeded
            else "The horizon is over; every floor was kept."
        )
    elif short:
        words = (
            f"Still missing: {lacking}, with {count(left, 'request')} to come. The promise is for the whole"
            " horizon: if fewer requests come, floors may be missed."
        )
    elif any(report.floors.values()):
        words = f"Every floor is reached, {count(left, 'request')} before the end of the horizon."
    else:
        no = "" if exceeded else "No promise is broken so far; "
        words = f"{no}{count(left, 'request')} to come."
    if exceeded:
        words += f" {count(exceeded, 'cap')} {'was' if exceeded == 1 else 'were'} exceeded."
    if report.completed:
        before = count(report.completed, "horizon")
        words += f" Of {before} before this one, {report.kept_horizons:,} kept every {every}."
    return words


def share_text(exposures: int, floor: int) -> str:
    """Return exposures / floor as a number, rounded down, so that a missed floor never shows 100 %.

    Examples
    --------
    >>> share_text(45, 100), share_text(9_999, 10_000), share_text(1_200, 20)
    ('45%', '99%', '60×')
    """
    if floor == 0:
        return ""
    return f"{exposures * 100 // floor}%" if exposures < 10 * floor else f"{exposures // floor:,}×"


def share_bar(exposures: int, floor: int) -> str:
    """Return a small bar of exposures / floor, full at 1, and the share as a number.

    Examples
    --------
    >>> share_bar(45, 100)
    '█████▍        45%'
    >>> share_bar(420, 100)
    '████████████ 420%'
    """
    if floor == 0:
        return " " * _BAR + "   no floor"
    full, eighths = divmod(min(exposures, floor) * _BAR * 8 // floor, 8)
    drawn = ("█" * full + (_EIGHTHS[eighths] if eighths else "")).ljust(_BAR)
    return f"{drawn} {share_text(exposures, floor):>4}"


def price_text(price: float) -> str:
    """Return a price as a short text."""
    if price in (0, math.inf):
        return "masked" if price else "0"
    return (f"{price:.4f}" if abs(price) >= 0.0001 else f"{price:.0e}").replace("-", "−")


def _cost(report: Report) -> str:
    if report.cost is None:
        return "cost not measured"
    share = _share(report, report.cost)
    bound = "" if report.cost_ratio is not None or share == "0%" else "at most "
    return f"cost {bound}{share} of relevance"


def _share(report: Report, cost: float) -> str:
    """Return a cost as a share of the relevance without floors. What rounding of sums may amount to is nothing."""
    base = abs(report.relevance + (report.cost or 0.0))
    if abs(cost) <= _ROUNDING * base:
        return "0%"
    return percent(cost / base) if base else f"{cost:.4g}"


def _standing(report: Report, label: Label) -> Text:
    """Return the status of a promise, or its outlook where that says more."""
    status = report.status[label]
    if report.outlooks is None or label not in report.outlooks or status not in ("on track", "behind"):
        return Text(status, style=_STYLES[status])
    outlook = report.outlooks[label].outlook
    return Text(outlook, style=_OUTLOOKS[outlook])


def _left_out(report: Report, labels: Sequence[Label]) -> str:
    tally = Counter(report.status[label] for label in labels)
    return f"{count(len(labels), f'more {report.noun}')} not shown: " + ", ".join(
        f"{tally[status]:,} {status}" for status in _ORDER if tally[status]
    )
