"""The result and the progress of a reproduction."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from fairsync import __version__
from fairsync.experiments.exhibit import ExhibitTable
from fairsync.text import count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairsync.data.dataset import Facts
    from fairsync.experiments.claims import Judged
    from fairsync.experiments.exhibit import Exhibit
    from fairsync.experiments.reproduction_setting import Setting
    from fairsync.models import TrainingProgress


@dataclass(frozen=True)
class RunProgress:
    """The progress of a run, for callbacks.

    Attributes
    ----------
    done, total : int
        Units of work: finished, and all. The total grows when an experiment needs more than trials.
    label : str
        Description of the current unit.
    training : TrainingProgress or None
        Progress of the model that is being trained, if any.
    """

    done: int
    total: int
    label: str
    training: TrainingProgress | None = None


@dataclass(frozen=True)
class Reproduction:
    """The contents of the report.

    Attributes
    ----------
    setting : Setting
        The setting of the reproduction.
    facts : Facts
        Facts of the data set.
    exhibits : sequence of Exhibit
        Exhibits in the order of the paper.
    impossible : mapping
        {name of an experiment: reason why the data do not allow it}.
    claims : sequence of Judged
        Claims with their verdicts.
    """

    setting: Setting
    facts: Facts
    exhibits: Sequence[Exhibit]
    impossible: Mapping[str, str]
    claims: Sequence[Judged]

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serialisable dictionary, with all digits of all tables."""
        return {
            "fairsync": __version__,
            "setting": self.setting.to_dict(),
            "facts": asdict(self.facts),
            "exhibits": [
                {
                    "name": one.name,
                    "title": one.title,
                    "words": one.words,
                    **one.table.to_dict(),
                    "more": {name: table.to_dict() for name, table in one.more.items()},
                }
                for one in self.exhibits
            ],
            "impossible": dict(self.impossible),
            "claims": [one.to_dict() for one in self.claims],
        }

    def to_markdown(self) -> str:
        """Return the report as Markdown. Figures are linked as ``exhibits/NAME.svg``."""
        setting, facts = self.setting, self.facts
        terms = (
            f"{facts.users:,} users, {facts.items:,} items, {facts.groups:,} groups, {facts.interactions:,}"
            f" interactions. Floor of every group: {count(setting.floor, 'exposure')}, unless said otherwise. Seeds:"
            f" {', '.join(map(str, setting.seeds))}. Prices are renewed every {setting.batch_size} requests."
            f" fairsync {__version__}{', a quick run: not to be quoted' if setting.quick else ''}."
        )
        parts = [f"# FairSync on {facts.name}\n\n{terms}\n"]
        parts += [one.to_markdown("exhibits/") for one in self.exhibits]
        if self.impossible:
            rows = "\n".join(f"- {name}: {why}" for name, why in self.impossible.items())
            parts.append(f"## Not possible here\n\n{rows}\n")
        claims = ExhibitTable(
            ["claim", "here", "figures of this run"],
            [
                [one.claim.sentence + (" (ours)" if one.claim.ours else ""), one.verdict.ruling, one.verdict.figures]
                for one in self.claims
            ],
        )
        parts.append(
            "## What became of the claims\n\nEach sentence is the paper's in our words, or ours where it says so. The"
            f" verdicts are computed from this run.\n\n{claims.to_markdown()}"
        )
        return "\n".join(parts)
