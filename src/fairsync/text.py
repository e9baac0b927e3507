"""Numbers and names as text, for messages, tables and plots."""

import math
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from io import StringIO


def count(number: int, noun: str) -> str:
    """Return a number with its noun.

    Examples
    --------
    >>> count(1, "group"), count(1200, "group")
    ('1 group', '1,200 groups')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def percent(share: float) -> str:
    """Return a fraction as a percentage with two significant digits.

    Examples
    --------
    >>> percent(0.5), percent(0.00123), percent(0.0)
    ('50%', '0.12%', '0%')
    """
    if share == 0:
        return "0%"
    decimals = max(0, 1 - math.floor(math.log10(abs(share * 100))))
    return f"{share * 100:.{decimals}f}%"


def listed(names: Sequence[object], most: int) -> str:
    """Return the first names, as many as `most`, and the number of the others.

    Examples
    --------
    >>> listed(["a", "b"], 3), listed(["a", "b", "c"], 2)
    ('a, b', 'a, b and 1 more')
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + more


def shortened(text: str, most: int) -> str:
    """Return a text cut to a number of characters, with an ellipsis in the place of the rest.

    Examples
    --------
    >>> shortened("toys", 4), shortened("books", 4)
    ('toys', 'boo…')
    """
    return text if len(text) <= most else text[: most - 1] + "…"


def did_you_mean(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return the known name that is closest to a misspelt one, as a question; another sentence if none is close.

    Examples
    --------
    >>> did_you_mean("providr", ["category", "provider"], "Choose one of them.")
    "Did you mean 'provider'?"
    >>> did_you_mean("x", ["category", "provider"], "Choose one of them.")
    'Choose one of them.'
    """
    close = get_close_matches(name, list(known), n=1)
    return f"Did you mean {close[0]!r}?" if close else otherwise


def plain_text(shown: object, width: int = 100) -> str:
    """Return what rich prints, such as a table, as text without colours."""
    from rich import console  # here, because it takes long to import

    text = StringIO()
    console.Console(file=text, width=width, color_system=None, force_terminal=False, legacy_windows=False).print(shown)
    return "\n".join(line.rstrip() for line in text.getvalue().rstrip().splitlines())
