"""Experiment: the trials and other work of a table or figure, and the function that makes its exhibit."""

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
    """The context of an experiment.

    Attributes
    ----------
    setting : Setting
        The setting of the reproduction.
    dataset : Dataset
        The data.
    trials : Trials
        Runs trials and stores their outcomes. Other work may use its ``store`` and ``bases``.
    """

    setting: Setting
    dataset: Dataset
    trials: Trials

    def cell(self, what: str, key: dict[str, Any], compute: Callable[[], Any]) -> Any:
        """Return a value from the store, or compute and store it, for these data and this kind of run."""
        shared = {"data": self.setting.fingerprint, "quick": self.setting.quick}
        return self.trials.store.cell(what, shared | key, compute)


@dataclass(frozen=True)
class WorkStep:
    """A unit of work whose result is stored, with a label for the progress bar.

    Attributes
    ----------
    label : str
        Description of the work.
    run : callable
        Function that does the work, unless its result is stored already.
    """

    label: str
    run: Callable[[], object]


@dataclass(frozen=True)
class Experiment:
    """A table or figure.

    Attributes
    ----------
    name : str
        Name on the command line and in files.
    title : str
        Title in one line.
    trials : callable
        Function from the setting to the required trials. They are run first, in an order that loads each model once.
    show : callable
        Function from the lab to the exhibit. It is called after all trials; other work is stored by :meth:`Lab.cell`.
    steps : callable or None
        Function from the lab to further units of work, for experiments that need more than trials.
    """

    name: str
    title: str
    trials: Callable[[Setting], Sequence[Trial]]
    show: Callable[[Lab], Exhibit]
    steps: Callable[[Lab], Sequence[WorkStep]] | None = None
