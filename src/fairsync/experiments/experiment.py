"""What every experiment is: trials or cells of its own, and an exhibit made of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairsync.data.dataset import Dataset
    from fairsync.experiments.exhibit import Exhibit
    from fairsync.experiments.reproduction_setting import Setting
    from fairsync.experiments.trials import Trial, Trials


@dataclass(frozen=True)
class Lab:
    """What an experiment works with.

    Attributes
    ----------
    setting : Setting
        The terms.
    dataset : Dataset
        The data.
    trials : Trials
        Runs trials and keeps their outcomes; its ``store`` and ``bases`` are there for cells of another kind.
    """

    setting: Setting
    dataset: Dataset
    trials: Trials

    def cell(self, what: str, key: dict[str, Any], compute: Callable[[], Any]) -> Any:
        """Return a value that is kept on disk, for these data and this kind of run."""
        shared = {"data": self.setting.fingerprint, "quick": self.setting.quick}
        return self.trials.store.cell(what, shared | key, compute)


@dataclass(frozen=True)
class WorkStep:
    """A piece of work that is done once and kept, with a label for the progress bar.

    Attributes
    ----------
    label : str
        What it is.
    run : callable
        Does it (or finds that it is done).
    """

    label: str
    run: Callable[[], object]


@dataclass(frozen=True)
class Experiment:
    """A table or figure.

    Attributes
    ----------
    name : str
        For the command line and for files.
    title : str
        One line.
    trials : callable
        Setting to the trials it needs; they are run first, in an order that loads each model once.
    show : callable
        Lab to exhibit. All trials are done by then; other work is kept through :meth:`Lab.cell`.
    steps : callable or None
        Lab to further pieces of work, for experiments that need more than trials.
    """

    name: str
    title: str
    trials: Callable[[Setting], Sequence[Trial]]
    show: Callable[[Lab], Exhibit]
    steps: Callable[[Lab], Sequence[WorkStep]] | None = None
