"""The progress bar of commands. It is shown on standard error, so that standard output holds the results only."""

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


def progress_bar(*, hidden: bool = False, counts: bool = False) -> Progress:
    """Return a progress bar that disappears at the end.

    Parameters
    ----------
    hidden
        Whether nothing is shown.
    counts
        Whether the numbers of units are shown: finished, and all.
    """
    numbers = [MofNCompleteColumn()] if counts else []
    columns = (TextColumn("{task.description}"), BarColumn(), *numbers, TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True), disable=hidden, transient=True)
