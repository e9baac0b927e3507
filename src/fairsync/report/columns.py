"""The columns of a table, and which of them fit into the width of a terminal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.text import Text

# Between two columns of a table.
_GAP = 3
# The first column has names, which can be cut off from this width on.
_NAME = 20


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes
    ----------
    heading : str
        Its name.
    cells : sequence of str or Text
        One for each row.
    is_number : bool
        Whether it is set flush right.
    dispensable : int
        In a terminal that is too narrow, the column with the largest value is left out first; 0 never.
    short : Column or None
        A narrower column that takes its place then.
    """

    heading: str
    cells: Sequence[str | Text]
    is_number: bool = True
    dispensable: int = 0
    short: Column | None = None

    @property
    def width(self) -> int:
        """Letters of the longest cell or the heading."""
        return max(cell_len(str(one)) for one in (self.heading, *self.cells))


def fitting(columns: Sequence[Column], width: int) -> list[Column]:
    """Return the columns that fit into a width, the most dispensable ones made short or left out.

    Examples
    --------
    >>> name, price = Column("promise", ["toys"], is_number=False), Column("price", ["0.1250"], dispensable=1)
    >>> [column.heading for column in fitting([name, price], 80)]
    ['promise', 'price']
    >>> [column.heading for column in fitting([name, price], 12)]
    ['promise']
    """
    left = list(columns)
    while left:
        names = min(left[0].width, _NAME)
        if names + sum(one.width + _GAP for one in left[1:]) + 2 <= width:
            break
        last = max(range(len(left)), key=lambda place: left[place].dispensable)
        if not left[last].dispensable:
            break
        short = left[last].short
        left[last : last + 1] = [] if short is None else [short]
    return left
