"""Whatever a file holds, a reader returns a log whose rows add up, or says what is wrong: no other error gets out."""

import contextlib
import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairsync.data import Log, read_amazon, read_table, read_taobao
from fairsync.errors import InvalidInputError

REVIEW = b'{"reviewerID": "A", "asin": "B", "unixReviewTime": 1400000000}\n'
META = b"{'asin': 'B', 'categories': [['Beauty', 'Soap']]}\n"
ROWS = {"amazon": REVIEW, "taobao": b"1,2,3,pv,1511658000\n", "table": b"a,x,1400000000\n"}
HEADS = {"amazon": b"", "taobao": b"", "table": b"user,item,time\n"}
SECOND = {"amazon": META, "taobao": b"", "table": b"item,group\nx,g\n"}

READERS: dict[str, Callable[[Path, Path], Log]] = {
    "amazon": read_amazon,
    "taobao": lambda log, _: read_taobao(log),
    "table": read_table,
}
noise = st.one_of(st.binary(max_size=40), st.text('{}[]",:\\\n\r 01-aeé', max_size=40).map(str.encode))


@pytest.mark.parametrize("source", READERS)
@given(before=noise, within=noise, second=noise, place=st.integers(0, 60), good=st.integers(0, 4), packed=st.booleans())
def test_noise(
    tmp_path_factory: pytest.TempPathFactory,
    source: str,
    before: bytes,
    within: bytes,
    second: bytes,
    place: int,
    good: int,
    packed: bool,
) -> None:
    folder = tmp_path_factory.mktemp("noise")
    row = ROWS[source]
    text = HEADS[source] + row * good + row[:place] + within + row[place:] + before
    log, other = folder / "log", folder / "other"
    log.write_bytes(gzip.compress(text)[: None if len(second) % 2 else -place] if packed else text)
    other.write_bytes(SECOND[source] + second)
    with contextlib.suppress(InvalidInputError):
        read = READERS[source](log, other)
        assert read.raw_rows == sum(len(part.users) for part in read.parts) + sum(
            [*read.bad_rows.values(), *read.left_out.values()]
        )
        assert read.bad_rows.keys() == read.first_bad.keys()
        for part in read.parts:
            assert read.item_groups.gather(part.items).null_count() == 0
