"""The progress of ``fairsync train``: a bar, a line for each finished epoch, and the time that is left."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from fairsync.models.settings import NetworkSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from rich.console import Console

    from fairsync.models import Epoch, Trained, TrainingProgress
    from fairsync.models.settings import TrainingSettings

# An estimate after fewer seconds would be one of the start, not of the training.
_FIRST_ESTIMATE_SECONDS = 5.0


class TrainingDisplay:
    """Shows a training on a console. A context manager.

    Parameters
    ----------
    screen
        The console. Without a terminal, lines are printed and no bar.
    name, settings
        The model.
    k
        The recall that is shown is Recall@k.
    clock
        Returns a time in seconds.
    """

    def __init__(
        self,
        screen: Console,
        name: str,
        settings: TrainingSettings,
        k: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._screen, self._name, self._settings, self._k, self._clock = screen, name, settings, k, clock
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        self._bar = Progress(
            *columns,
            TextColumn("{task.fields[figures]}"),
            console=screen,
            disable=screen.quiet or not screen.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task(name, total=None, figures="")
        self._started, self._resumed_at = 0.0, -1
        self._printed, self._has_estimate = 0, False

    def __enter__(self) -> TrainingDisplay:
        self._started = self._clock()
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def show(self, now: TrainingProgress) -> None:
        """Show the progress after a step."""
        if self._resumed_at < 0:
            self._resumed_at = len(now.epochs)
        self._print_epochs(now.epochs)
        left = self._time_left(now)
        figures = f"loss {now.loss:.3f}"
        if now.epochs:
            figures += f", best Recall@{self._k} {max(epoch.recall for epoch in now.epochs):.4f}"
        if left:
            figures += f", {left} left"
            if not self._has_estimate:
                self._has_estimate = True
                self._screen.print(f"This will take {left}.", markup=False, soft_wrap=True)
        words = f"{self._name}, epoch {len(now.epochs) + 1}"
        self._bar.update(self._task, completed=now.done, total=now.total, description=words, figures=figures)

    def finish(self, trained: Trained) -> None:
        """Print the epochs that were not printed yet, and which of them is kept."""
        self._print_epochs(trained.epochs)
        if len(trained.epochs) > 1:
            self._screen.print(f"The best epoch, {trained.best + 1}, is kept.")

    def _print_epochs(self, epochs: Sequence[Epoch]) -> None:
        if epochs and not self._printed:
            self._screen.print(f"epoch      loss  validation Recall@{self._k}  seconds")
        for number in range(self._printed, len(epochs)):
            one = epochs[number]
            is_best = one.recall > max((epoch.recall for epoch in epochs[:number]), default=-1.0)
            loss = "–" if one.loss is None else f"{one.loss:.4f}"
            line = f"{number + 1:>5}  {loss:>8}  {one.recall:>{len(f'validation Recall@{self._k}')}.4f}"
            self._screen.print(f"{line}  {one.seconds:>7.1f}  {'best' if is_best else ''}".rstrip())
        self._printed = len(epochs)

    def _time_left(self, now: TrainingProgress) -> str:
        """Return the least and the most time that training can still take; nothing while that is unknown."""
        seconds, finished = self._clock() - self._started, len(now.epochs) - self._resumed_at
        done = finished + now.done / now.total
        if not isinstance(self._settings, NetworkSettings) or not done or seconds < _FIRST_ESTIMATE_SECONDS:
            return ""
        recalls = [epoch.recall for epoch in now.epochs]
        since_best = len(recalls) - 1 - recalls.index(max(recalls)) if recalls else 0
        most = self._settings.epochs - len(recalls)
        # The least: no epoch from now on is better than those so far (the first one always is).
        least = min(most, self._settings.patience - since_best if recalls else self._settings.patience + 1)
        part, each = now.done / now.total, seconds / done
        shortest, longest = (duration(max(epochs - part, 0.0) * each) for epochs in (least, most))
        return longest if shortest == longest else f"{shortest} to {longest}"


def duration(seconds: float) -> str:
    """Return a duration as a short text.

    Examples
    --------
    >>> duration(8.3), duration(200), duration(9_000)
    ('8 s', '3 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
