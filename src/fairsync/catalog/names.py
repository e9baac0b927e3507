"""Names: the ids of items and the labels of groups, all words or all numbers, checked and stored as one array."""

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fairsync.catalog.arrays import is_missing, to_values
from fairsync.errors import InvalidInputError

Names: TypeAlias = npt.NDArray[Any]

# Control characters cannot be seen in a report, numpy drops NULs at the end, and half a surrogate pair has no UTF-8.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
# Words are searched this many at a time.
_BLOCK = 1 << 16
# A numpy array of words gives each the space of the longest. Below this many bytes that does not matter.
_WASTE = 1 << 24
# Bytes of a Python string without its characters, and of the reference to it.
_STRING_BYTES = 64


def check_names(given: Any, n: int | None, what: str, one: str, allowed: str = "all str or all int") -> Names:
    """Return labels or ids as an int64 array, or as one of words. Raise for values that cannot be matched reliably.

    Parameters
    ----------
    given
        The names.
    n
        How many there must be; by default any number.
    what, one, allowed
        The words for several names, for one, and for their types, for messages.

    Examples
    --------
    >>> check_names(["tea", "jam"], 2, "ids", "id")
    array(['tea', 'jam'], dtype='<U3')
    """
    given = to_values(given)
    array = given if isinstance(given, np.ndarray) else None
    number, is_too_large = "" if n is None else f"{n} ", False
    if array is None and (isinstance(given, str | bytes | Set | Mapping) or not isinstance(given, Iterable)):
        raise InvalidInputError(f"{what} must be {number}{one}s in the order of the items, got {given!r:.80}.")
    if array is None or array.dtype.kind in "OT":
        values = list(given) if array is None else array.tolist()
        kinds = {_kind(type_): type_ for type_ in {type(value) for value in values}}
        if not kinds.keys() <= {"int", "str"}:
            at = next(i for i, value in enumerate(values) if _kind(type(value)) not in ("int", "str"))
            raise InvalidInputError(
                f"{what} must be {allowed}, got {values[at]!r:.80} ({type(values[at]).__name__}) in position {at}:"
                f" {_advice(values[at], one)}."
            )
        if len(kinds) > 1:
            word, number = (next(value for value in values if _kind(type(value)) == kind) for kind in ("str", "int"))
            raise InvalidInputError(f"{what} mix str ({word!r}) and int ({number!r}): convert them all to one type.")
        if "str" in kinds:
            _check_words(values, what, one)
            array = words_array(values)
        else:
            array = np.asarray(values, dtype=None if values else np.int64)
            is_too_large = array.dtype.kind == "O"
    elif array.dtype.kind == "U" and array.ndim == 1:
        _check_words(array.tolist(), what, one)
        array = join_names([array])
    if array.ndim != 1 or len(array) != (len(array) if n is None else n):
        raise InvalidInputError(f"{what} must be {number}{one}s, one per embedding, got shape {array.shape}.")
    if are_words(array) and not is_too_large:
        return array.copy() if array is given else array
    if array.dtype.kind not in "iu" or int(array.max(initial=0)) > np.iinfo(np.int64).max:
        raise InvalidInputError(f"{what} must be str, or int that fits in 64 bits, got {array.dtype}: convert them.")
    return array.astype(np.int64)


def is_name(value: str | int) -> bool:
    r"""Return whether a value can be a name: a number, or a word without control characters.

    Examples
    --------
    >>> is_name("tea"), is_name(7), is_name("tea\0")
    (True, True, False)
    """
    return not isinstance(value, str) or _CONTROL.search(value) is None


def are_words(names: Names) -> bool:
    """Return whether names are words, not numbers."""
    return names.dtype.kind in "UO"


def check_same_kind(given: Names, known: Names, what: str) -> None:
    """Raise if names can never match: words where the catalog has numbers, or the other way round."""
    kinds = [("words" if are_words(array) else "numbers") for array in (given, known)]
    if kinds[0] != kinds[1]:
        raise InvalidInputError(f"the catalog's {what} are {kinds[1]}, and these are {kinds[0]}: convert them.")


def words_array(words: Sequence[str]) -> Names:
    """Return words as a numpy array of fixed width, or of Python strings if a few long ones would make it large.

    Examples
    --------
    >>> words_array(["a", "long"]).dtype, words_array([*"abc" * 3000, "long" * 1000]).dtype
    (dtype('<U4'), dtype('O'))
    """
    lengths = [len(word) for word in words]
    if _is_wasteful(len(words), max(lengths, default=0), sum(lengths)):
        return np.array(words, dtype=object)
    return np.asarray(words, dtype=np.str_)


def join_names(parts: Sequence[Names]) -> Names:
    """Return the names of several arrays as one; see `words_array`.

    Examples
    --------
    >>> join_names([np.array(["a"]), np.array(["bc"])]).tolist(), join_names([np.array([1]), np.array([2])]).tolist()
    (['a', 'bc'], [1, 2])
    """
    if all(part.dtype.kind == "U" for part in parts):
        number, width = sum(map(len, parts)), max(part.dtype.itemsize // 4 for part in parts)
        if 4 * number * width > _WASTE:
            total = sum(int(np.strings.str_len(part).sum()) for part in parts)
            if _is_wasteful(number, width, total):
                parts = [part.astype(object) for part in parts]
    return np.concatenate(parts) if len(parts) > 1 else parts[0]


def plain_words(names: Names) -> Names:
    """Return names as callers know them: words as a numpy array of fixed width."""
    return names.astype(np.str_) if names.dtype.kind == "O" else names


def _is_wasteful(number: int, longest: int, total: int) -> bool:
    """Return whether words in the width of the longest need far more memory than Python strings."""
    fixed = 4 * number * longest
    return fixed > _WASTE and fixed > 2 * (_STRING_BYTES * number + total)


def _check_words(words: Sequence[str], what: str, one: str) -> None:
    for start in range(0, len(words), _BLOCK):
        if not _CONTROL.search("".join(words[start : start + _BLOCK])):
            continue
        at = next(i for i in range(start, len(words)) if _CONTROL.search(words[i]))
        raise InvalidInputError(
            f"{what} hold {words[at]!r:.80} in position {at}, with a control character (such as a line end, a tab or a"
            f" NUL) or a lone surrogate: remove it from the {one}."
        )


def _advice(value: object, one: str) -> str:
    """Return what to do about a value that cannot be a name."""
    if is_missing(value):
        return f"give every item its {one}"
    if callable(getattr(value, "isoformat", None)):
        return "write dates and times as text with .isoformat(), or as numbers, such as days since a date"
    if isinstance(value, float | np.floating):
        return f"a {one} must match exactly, which a float may not: convert it to int or str"
    if isinstance(value, list | tuple | set | dict):
        return f"give every item one {one}"
    return f"convert every {one} with str(...)"


def _kind(type_: type) -> str:
    """Return the name of the kind of a label; a bool is an int to Python, but not a label."""
    if issubclass(type_, bool | np.bool_):
        return "bool"
    if issubclass(type_, int | np.integer):
        return "int"
    return "str" if issubclass(type_, str) else type_.__name__
