"""Convert a mapping to a struct and report every mistake in it, with a suggestion for each misspelled key.

msgspec stops at the first mistake, names no similar key, and repeats a wrong value, which may be a secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import msgspec

from fairsync.errors import InvalidInputError

S = TypeVar("S", bound=msgspec.Struct)
Key = tuple[int | str, ...]


def parse_struct(kind: type[S], given: Mapping[str, Any], origins: Mapping[Key, str] | None = None) -> S:
    """Return the struct that a mapping describes.

    Parameters
    ----------
    kind
        The struct. Its ``__post_init__`` may raise a ValueError for fields that do not fit together, and a class method
        ``unused`` may return those of the given keys that the others leave without an effect, with what to say of them.
    given
        Plain values, as a TOML or JSON file has them. Numbers may be strings, as in environment variables.
    origins
        Names to report for keys that do not come from the file, such as environment variables.

    Examples
    --------
    >>> class Server(msgspec.Struct):
    ...     host: str
    ...     port: int = 80
    >>> parse_struct(Server, {"host": "localhost", "port": "8080"})
    Server(host='localhost', port=8080)
    >>> parse_struct(Server, {"prot": 8080})
    Traceback (most recent call last):
    fairsync.errors.InvalidInputError: host: is missing: add it; prot: is not a setting; did you mean 'port'?
    """
    parser = _Parser()
    parsed: S = parser.struct(kind, given, ())
    if parser.mistakes:
        text = "; ".join(_sentence(key, words, origins or {}) for key, words in parser.mistakes)
        raise InvalidInputError(text if text.endswith(("?", ".")) else f"{text}.")
    return parsed


class _Parser:
    def __init__(self) -> None:
        self.mistakes: list[tuple[Key, str]] = []

    def struct(self, kind: type[Any], given: Any, key: Key) -> Any:
        if not isinstance(given, Mapping):
            return self._refuse(key, "must be a section of keys and values")
        known = {field.name: field for field in msgspec.structs.fields(kind)}
        before, values = len(self.mistakes), {}
        for name, field in known.items():
            if name in given:
                values[name] = self._value(field.type, given[name], (*key, name))
            elif field.required:
                self._refuse((*key, name), "is missing: add it")
        for name in given:
            if name not in known:
                close = get_close_matches(str(name), known, n=1)
                hint = f"; did you mean '{close[0]}'?" if close else ": remove it"
                self._refuse((*key, name), f"is not a setting{hint}")
        if hasattr(kind, "unused"):
            for name, words in kind.unused(given).items():
                self._refuse((*key, name), words)
        if len(self.mistakes) > before:
            return None
        try:
            return kind(**values)
        except ValueError as error:
            return self._refuse(key, str(error))

    def _value(self, kind: Any, given: Any, key: Key) -> Any:
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return self.struct(kind, given, key)
        plain = get_args(kind)[0] if get_origin(kind) is Annotated else kind
        if get_origin(plain) is list and isinstance(given, list):
            before = len(self.mistakes)
            values = [self._value(get_args(plain)[0], one, (*key, place)) for place, one in enumerate(given)]
            if kind is plain or len(self.mistakes) > before:
                return values
        try:
            return msgspec.convert(given, kind, strict=False, dec_hook=_to_path)
        except msgspec.ValidationError as error:
            if get_origin(plain) is Literal:  # msgspec would repeat the value, which may be a secret
                return self._refuse(key, f"expected one of {', '.join(map(repr, get_args(plain)))}")
            message = str(error)
            return self._refuse(key, message[0].lower() + message[1:])

    def _refuse(self, key: Key, words: str) -> None:
        self.mistakes.append((key, words))


def _sentence(key: Key, words: str, origins: Mapping[Key, str]) -> str:
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in key).lstrip(".")
    origin = f", set by {origins[key]}" if key in origins else ""
    return f"{where}{origin}: {words}" if where else words


def _to_path(kind: type[Any], given: Any) -> Any:
    if kind is Path and isinstance(given, str):
        return Path(given)
    raise ValueError(f"expected a path, got {type(given).__name__}")
