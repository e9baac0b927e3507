"""Read text files, compressed or not, in blocks of whole lines, with bounded memory."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zipfile
import zlib
from typing import IO, TYPE_CHECKING, NamedTuple, cast

from fairsync.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from fairsync.data.encodings import TextEncoding

BLOCK_BYTES = 1 << 25
"""Bytes of a block: about a million short lines, large enough to be fast."""

_UTF8_MARK = b"\xef\xbb\xbf"
_DAMAGE = (EOFError, OSError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, RuntimeError, NotImplementedError)


class Block(NamedTuple):
    """Whole lines of a file, and the number of the first line, counted from 1."""

    lines: bytes
    first: int


def check_is_file(path: Path) -> None:
    """Raise if a path does not exist, or is a folder."""
    if not path.is_file():
        raise InvalidInputError(f"{path} {'is not a file' if path.exists() else 'does not exist'}: check the path.")


def read_blocks(
    path: Path,
    advance: Callable[[int], object] | None = None,
    block_bytes: int = BLOCK_BYTES,
    encoding: TextEncoding | None = None,
) -> Iterator[Block]:
    r"""Read a text file block by block.

    The compression is detected by the first bytes, not by the file name, because downloads are often decompressed in
    transit and keep their name.

    Parameters
    ----------
    path
        A plain file, or one compressed as gzip, bzip2, xz or zip (with a single file in it).
    advance
        A callback that gets the number of bytes read from the disk after every block.
    block_bytes
        Bytes of text in a block, which is also the maximum length of a line.
    encoding
        Converts the text to UTF-8. By default it stays as it is.

    Yields
    ------
    Block
        Whole lines.

    Examples
    --------
    >>> import gzip, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "log.csv.gz"
    >>> _ = path.write_bytes(gzip.compress(b"1,a\n2,b\n3,c\n"))
    >>> list(read_blocks(path, block_bytes=8))
    [Block(lines=b'1,a\n2,b\n', first=1), Block(lines=b'3,c\n', first=3)]
    """
    check_is_file(path)
    line, rest, position = 1, b"", 0
    with path.open("rb") as raw:
        try:
            with _unpack(raw, path) as text:
                while new := text.read(block_bytes):
                    new = _decode(new, encoding, path)
                    if line == 1 and not rest:
                        new = new.removeprefix(_UTF8_MARK)
                    cut = new.rfind(b"\n") + 1
                    if not cut and len(rest) + len(new) > block_bytes:
                        raise InvalidInputError(f"{path}:{line}: the line does not end. Is it a text file?")
                    lines, rest = (rest + new[:cut], new[cut:]) if cut else (b"", rest + new)
                    if lines:
                        yield Block(encoding.settle(lines) if encoding else lines, line)
                        line += lines.count(b"\n")
                    if advance:
                        position, before = raw.tell(), position
                        advance(position - before)
        except _DAMAGE as error:
            raise InvalidInputError(
                f"{path}: cannot be unpacked beyond line {line} ({error}): the file is damaged or was not fetched"
                " whole. Fetch it again."
            ) from error
    if rest:
        yield Block(encoding.settle(rest) if encoding else rest, line)
    elif line == 1:
        raise InvalidInputError(f"{path} is empty: fetch it again.")


def _decode(new: bytes, encoding: TextEncoding | None, path: Path) -> bytes:
    if encoding is None:
        return new
    try:
        return encoding.decode(new)
    except InvalidInputError as error:
        raise InvalidInputError(f"{path}: {error}") from error


def _unpack(raw: IO[bytes], path: Path) -> IO[bytes]:
    head = raw.read(6)
    raw.seek(0)
    if head.startswith(b"\x1f\x8b"):
        return cast("IO[bytes]", gzip.GzipFile(fileobj=raw))
    if head.startswith(b"BZh"):
        return bz2.BZ2File(raw)
    if head.startswith(b"\xfd7zXZ\x00"):
        return lzma.LZMAFile(raw)
    if head.startswith(b"PK\x03\x04"):
        archive = zipfile.ZipFile(raw)
        names = [name for name in archive.namelist() if not name.endswith("/") and not name.startswith("__MACOSX/")]
        if len(names) != 1:
            raise InvalidInputError(
                f"{path} packs {len(names)} files, not one: unpack it and name the one that is meant."
            )
        return archive.open(names[0])
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        raise InvalidInputError(
            f"{path} is packed as zstd, which is not read here: unpack it first (unzstd {path.name})."
        )
    return raw
