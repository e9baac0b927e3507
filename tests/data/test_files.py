"""Files in blocks: every compression gives the same lines, and errors name the damaged line."""

import bz2
import gzip
import io
import itertools
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairsync.data.files import read_blocks
from fairsync.errors import InvalidInputError

TEXT = b"".join(b"%d,line\n" % number for number in range(500))


def zipped(text: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("log.csv", text)
    return buffer.getvalue()


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress, zipped])
def test_every_packing_gives_the_same_lines_whatever_the_name(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_bytes(pack(TEXT))
    read: list[int] = []
    blocks = list(read_blocks(path, read.append, block_bytes=256))
    assert b"".join(block.lines for block in blocks) == TEXT
    assert len(blocks) > 10
    for block in blocks:
        assert block.lines.startswith(b"%d," % (block.first - 1))
        assert block.lines.endswith(b"\n")
    assert 0 < sum(read) <= path.stat().st_size


@given(st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"")), min_size=1), st.booleans())
def test_blocks_are_whole_lines(tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], ends: bool) -> None:
    text = b"plain\n" + b"\n".join(lines) + (b"\n" if ends else b"")
    path = tmp_path_factory.mktemp("blocks") / "log.txt"
    path.write_bytes(text)
    blocks = list(read_blocks(path, block_bytes=24))
    assert b"".join(block.lines for block in blocks) == text
    for block, following in itertools.pairwise(blocks):
        assert block.lines.endswith(b"\n")
        assert following.first == block.first + block.lines.count(b"\n")


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes(b"\xef\xbb\xbfuser,item\n")
    assert next(read_blocks(path)).lines == b"user,item\n"


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_file_cut_short_is_told_with_the_line(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / "log.gz"
    path.write_bytes(pack(TEXT)[:-30])
    with pytest.raises(InvalidInputError, match=r"log.gz: cannot be unpacked beyond line \d+ .*Fetch it again"):
        list(read_blocks(path, block_bytes=256))


def test_damage_inside_is_told(tmp_path: Path) -> None:
    path = tmp_path / "log.gz"
    packed = bytearray(gzip.compress(TEXT))
    packed[60:70] = bytes(10)
    path.write_bytes(packed)
    with pytest.raises(InvalidInputError, match="Fetch it again"):
        list(read_blocks(path, block_bytes=256))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is empty"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (b"x" * 1000, ":1: the line does not end"),
        (b"\x28\xb5\x2f\xfd" + b"x" * 20, "unpack it first"),
    ],
)
def test_files_that_are_no_text(content: bytes, why: str, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(content)
    with pytest.raises(InvalidInputError, match=why):
        list(read_blocks(path, block_bytes=256))


def test_an_archive_of_several_files_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "two.zip", "w") as archive:
        archive.writestr("a", "1")
        archive.writestr("b", "2")
    with pytest.raises(InvalidInputError, match="packs 2 files"):
        list(read_blocks(tmp_path / "two.zip"))


def test_a_path_that_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="does not exist"):
        list(read_blocks(tmp_path / "none"))
    with pytest.raises(InvalidInputError, match="is not a file"):
        list(read_blocks(tmp_path))
