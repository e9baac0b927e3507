"""The report of a reproduction as Markdown, with linked figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairsync import __version__
from fairsync.experiments.exhibit import ExhibitTable
from fairsync.text import count

if TYPE_CHECKING:
    from fairsync.experiments.reproduction import Reproduction


def render_markdown(run: Reproduction) -> str:
    """Return the report as Markdown. Figures are linked as ``exhibits/NAME.svg``."""
    setting, facts = run.setting, run.facts
    terms = (
        f"{facts.users:,} users, {facts.items:,} items, {facts.groups:,} groups, {facts.interactions:,} interactions."
        f" Floor of every group: {count(setting.floor, 'exposure')}, unless said otherwise. Seeds:"
        f" {', '.join(map(str, setting.seeds))}. Prices are renewed every {setting.batch_size} requests."
        f" fairsync {__version__}{', a quick run: not to be quoted' if setting.quick else ''}."
    )
    parts = [f"# FairSync on {facts.name}\n\n{terms}\n"]
    for one in run.exhibits:
        picture = f"![{one.title}](exhibits/{one.name}.svg)\n\n" if one.figure else ""
        parts.append(f"## {one.title}\n\n{one.words}\n\n{picture}{one.table.to_markdown()}")
    if run.impossible:
        rows = "\n".join(f"- {name}: {why}" for name, why in run.impossible.items())
        parts.append(f"## Not possible here\n\n{rows}\n")
    claims = ExhibitTable(
        ["claim", "here", "figures of this run"],
        [
            [one.claim.sentence + (" (ours)" if one.claim.ours else ""), one.verdict.ruling, one.verdict.figures]
            for one in run.claims
        ],
    )
    parts.append(
        "## What became of the claims\n\nEach sentence is the paper's in our words, or ours where it says so. The"
        f" verdicts are computed from this run.\n\n{claims.to_markdown()}"
    )
    return "\n".join(parts)
