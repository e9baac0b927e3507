"""Text in other encodings than UTF-8, converted while a file is read."""

from __future__ import annotations

import codecs

from fairsync.errors import InvalidInputError

UTF_8 = "utf-8"
LATIN_1 = "cp1252"
"""What files that are called Latin-1 nearly always are: Windows-1252, in which 0x80 is the euro sign."""

_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_SAMPLE = 1 << 12  # bytes at the start of a file that are searched for NULs


class TextEncoding:
    r"""Converts the bytes of one file to UTF-8.

    Parameters
    ----------
    given
        Name of the encoding. By default it is detected: UTF-16 and UTF-32 by a byte order mark, or by the NULs that
        plain letters have in UTF-16; otherwise the first lines that are not ASCII decide between UTF-8 and
        Windows-1252.

    Attributes
    ----------
    name : str or None
        Name of the encoding. None as long as all text is ASCII.

    Examples
    --------
    >>> encoding = TextEncoding()
    >>> encoding.settle(encoding.decode("thé\n".encode("latin-1"))).decode(), encoding.name
    ('thé\n', 'cp1252')
    """

    def __init__(self, given: str | None = None) -> None:
        self.name: str | None = None
        self._decoder: codecs.IncrementalDecoder | None = None
        self._is_first = given is None
        if given is not None:
            try:
                self.name = codecs.lookup(given).name
                if "x".encode(self.name) == b"":
                    raise LookupError
            except (LookupError, ValueError, TypeError):
                raise InvalidInputError(
                    f"there is no encoding {given!r}: give one such as utf-8, latin-1, utf-16 or shift-jis."
                ) from None
            if self.name != UTF_8:
                self._decoder = codecs.getincrementaldecoder(self.name)()

    @property
    def label(self) -> str:
        """The name of the encoding as people know it."""
        return "Latin-1 (Windows-1252)" if self.name == LATIN_1 else str(self.name).upper()

    def decode(self, chunk: bytes) -> bytes:
        """Return some bytes of the file as UTF-8, unless `settle` will have to decide. Chunks may cut characters."""
        if self._is_first:
            self._is_first = False
            self.name = _detect_wide(chunk[:_SAMPLE])
            if self.name is not None:
                self._decoder = codecs.getincrementaldecoder(self.name)()
        if self._decoder is None:
            return chunk
        try:
            return self._decoder.decode(chunk).removeprefix("\ufeff").encode()
        except UnicodeError as error:
            raise InvalidInputError(f"not {self.name} text ({error}): give another encoding (--encoding).") from None

    def settle(self, lines: bytes) -> bytes:
        """Return whole lines as UTF-8. Lines of a file in UTF-8 stay as they are, also those that are not valid."""
        if self.name is None and not lines.isascii():
            self.name = _guess(lines)
        if self.name == LATIN_1 and self._decoder is None:
            return lines.decode(LATIN_1, errors="replace").encode()
        return lines


def _detect_wide(head: bytes) -> str | None:
    for mark, name in _MARKS.items():
        if head.startswith(mark):
            return name
    even, odd = head[::2], head[1::2]
    if odd.count(0) > len(odd) // 2 > even.count(0):
        return "utf-16-le"
    return "utf-16-be" if even.count(0) > len(even) // 2 > odd.count(0) else None


def _guess(lines: bytes) -> str:
    """Return UTF-8 if most lines that are not ASCII are valid in it, and Windows-1252 otherwise."""
    try:
        lines.decode()
    except UnicodeDecodeError:
        valid = [_is_utf8(line) for line in lines.split(b"\n") if not line.isascii()]
        return UTF_8 if 2 * sum(valid) > len(valid) else LATIN_1
    return UTF_8


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True
