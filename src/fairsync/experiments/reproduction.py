"""What a run of experiments comes to, and how far it is."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from fairsync import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairsync.data.dataset import Facts
    from fairsync.experiments.claims import Judged
    from fairsync.experiments.exhibit import Exhibit
    from fairsync.experiments.reproduction_setting import Setting
    from fairsync.models import TrainingProgress


@dataclass(frozen=True)
class RunProgress:
    """How far a run is, for those who watch.

    Attributes
    ----------
    done, total : int
        Pieces of work. The total grows when an experiment turns out to need more than trials.
    label : str
        The piece under way.
    training : TrainingProgress or None
        Where a model's training stands, while that is what takes time.
    """

    done: int
    total: int
    label: str
    training: TrainingProgress | None = None


@dataclass(frozen=True)
class Reproduction:
    """Everything that the report shows.

    Attributes
    ----------
    setting : Setting
        The terms.
    facts : Facts
        Of the data.
    exhibits : sequence of Exhibit
        In the order of the paper.
    impossible : mapping
        Names of experiments that these data do not allow, with the reason.
    claims : sequence of Judged
        What the paper says, and what this run says to it.
    """

    setting: Setting
    facts: Facts
    exhibits: Sequence[Exhibit]
    impossible: Mapping[str, str]
    claims: Sequence[Judged]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as JSON can hold them: all tables with all digits."""
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
