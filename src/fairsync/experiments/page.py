"""The report of a reproduction as a self-contained HTML page."""

from __future__ import annotations

import re
from collections import Counter
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

from fairsync import __version__
from fairsync.text import count

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from fairsync.experiments.claims import Judged
    from fairsync.experiments.exhibit import Exhibit, ExhibitTable
    from fairsync.experiments.reproduction import Reproduction
    from fairsync.experiments.verdicts import Ruling

_TALLIES: dict[Ruling, str] = {
    "holds": "hold",
    "does not hold": "do not hold",
    "not comparable": "not comparable",
    "not run": "not run",
}
_LONG = 30  # tables with more rows are folded


def render_page(run: Reproduction, folder: Path) -> str:
    """Return the report as HTML without scripts and external resources. All text from the data is escaped.

    Parameters
    ----------
    run
        The reproduction.
    folder
        Folder of the page. The files of the exhibits are in its folder ``exhibits``.
    """
    style = (files(__package__) / "page.css").read_text(encoding="utf-8")
    title = escape(f"FairSync on {run.facts.name}")
    exhibits = "\n".join(_exhibit(one, folder / "exhibits") for one in run.exhibits)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<header>
<h1>{title}</h1>
<p class="lead">The tables and figures of “FairSync: Ensuring Amortized Group Exposure in Distributed Recommendation
Retrieval” (WWW 2024), reproduced, and further experiments.</p>
{_caution(run)}{_terms(run)}
{_tallies(run.claims)}
{_contents(run)}
</header>
<main>
{exhibits}
{_impossible(run)}{_claims(run.claims)}
</main>
<footer>fairsync {escape(__version__)}. All numbers are in <a href="report.json">report.json</a>. The same command
computes only what is missing.</footer>
</body>
</html>
"""


def _caution(run: Reproduction) -> str:
    if not run.setting.quick:
        return ""
    return (
        '<p class="warning">A quick run: models trained briefly, few points and short grids. It shows that everything'
        " works; its numbers are not to be quoted.</p>\n"
    )


def _terms(run: Reproduction) -> str:
    setting, facts = run.setting, run.facts
    terms = {
        "users": f"{facts.users:,}",
        "items": f"{facts.items:,}",
        "groups": f"{facts.groups:,}",
        "interactions": f"{facts.interactions:,}",
        "floor of every group": count(setting.floor, "exposure"),
        "K": ", ".join(map(str, setting.ks)),
        "base models": ", ".join(setting.models),
        "model of the figures": setting.analysed,
        "seeds": ", ".join(map(str, setting.seeds)),
        "prices renewed every": f"{setting.batch_size} requests",
        "version": __version__,
        "data": setting.fingerprint,
    }
    pairs = "\n".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in terms.items())
    return f"<dl>\n{pairs}\n</dl>"


def _tallies(claims: Sequence[Judged]) -> str:
    counts = Counter(one.verdict.ruling for one in claims)
    tallies = "".join(
        f'<li><b>{counts[ruling]}</b> <span class="{_slug(ruling)}">{words}</span></li>'
        for ruling, words in _TALLIES.items()
        if counts[ruling]
    )
    return f'<p>What became of the <a href="#claims">{len(claims)} claims</a>:</p>\n<ul class="tallies">{tallies}</ul>'


def _contents(run: Reproduction) -> str:
    entries = {one.name: one.title for one in run.exhibits}
    entries |= {"not-possible": "Not possible here"} if run.impossible else {}
    entries["claims"] = "What became of the claims"
    links = "\n".join(f'<li><a href="#{escape(name)}">{escape(title)}</a></li>' for name, title in entries.items())
    return f"<nav><h2>Contents</h2>\n<ol>\n{links}\n</ol></nav>"


def _exhibit(one: Exhibit, folder: Path) -> str:
    links = {kind.upper(): f"{one.name}.{kind}" for kind in ("csv", "md", *(("svg", "png") if one.figure else ()))}
    links |= {f"CSV: {name}": f"{one.name}-{name}.csv" for name in one.more}
    beside = " · ".join(f'<a href="exhibits/{escape(path)}">{escape(name)}</a>' for name, path in links.items())
    table = _table(one.table)
    if len(one.table.rows) > _LONG:
        table = f"<details><summary>The numbers: {len(one.table.rows)} rows</summary>\n{table}</details>"
    return f"""<section id="{escape(one.name)}">
<h2>{escape(one.title)}</h2>
<p>{escape(one.words)}</p>
{_figure(one, folder)}{table}
<p class="files">{beside}</p>
</section>"""


def _figure(one: Exhibit, folder: Path) -> str:
    """Return the figure as an SVG element with ids that are unique on the page."""
    if one.figure is None:
        return ""
    text = (folder / f"{one.name}.svg").read_text(encoding="utf-8")
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{one.name}-", text)
    return f'<figure role="img" aria-label="{escape(one.title)}">\n{text}</figure>\n'


def _table(table: ExhibitTable) -> str:
    numeric = [all(not isinstance(row[at], str) for row in table.rows) for at in range(len(table.columns))]
    marks = [' class="number"' if one else "" for one in numeric]
    head = "".join(f"<th{mark}>{escape(name)}</th>" for name, mark in zip(table.columns, marks, strict=True))

    def cell(row: int, column: int) -> str:
        text = escape(table.text(table.rows[row][column]))
        text = f"<b>{text}</b>" if (row, column) in table.bold else text
        return f"<td{marks[column]}>{text}{'<sup>*</sup>' if (row, column) in table.starred else ''}</td>"

    rows = ("".join(cell(row, column) for column in range(len(marks))) for row in range(len(table.rows)))
    body = "\n".join(f"<tr>{cells}</tr>" for cells in rows)
    return f'<div class="scroll"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>'


def _impossible(run: Reproduction) -> str:
    if not run.impossible:
        return ""
    rows = "\n".join(f"<li>{escape(name)}: {escape(why)}</li>" for name, why in run.impossible.items())
    return f'<section id="not-possible">\n<h2>Not possible here</h2>\n<ul>\n{rows}\n</ul>\n</section>\n'


def _claims(claims: Sequence[Judged]) -> str:
    rows = "\n".join(
        f'<tr><td class="claim">{escape(one.claim.sentence)}{_source(one)}</td>'
        f'<td class="ruling {_slug(one.verdict.ruling)}">{one.verdict.ruling}</td>'
        f'<td class="figures">{escape(one.verdict.figures)}</td></tr>'
        for one in claims
    )
    return f"""<section id="claims">
<h2>What became of the claims</h2>
<p>Each sentence is the paper's in our words, or ours where it says so. The verdicts are computed from this run, on
these data and terms.</p>
<div class="scroll"><table>
<thead><tr><th>claim</th><th>here</th><th>figures of this run</th></tr></thead>
<tbody>
{rows}
</tbody></table></div>
</section>"""


def _source(one: Judged) -> str:
    ours = ' <span class="tag">ours</span>' if one.claim.ours else ""
    shown = one.claim.experiment is not None and one.verdict.ruling in ("holds", "does not hold")
    return ours + (f' <a class="tag" href="#{one.claim.experiment}">{one.claim.experiment}</a>' if shown else "")


def _slug(ruling: str) -> str:
    return ruling.replace(" ", "-")
