"""Lines read the fast way and the slow way are the same lines."""

import json

from hypothesis import given
from hypothesis import strategies as st

from fairsync.data.files import Block
from fairsync.data.lines import read_csv, read_json

NAMES = ["a", "b", "c"]
field = st.text(st.characters(codec="utf-8", exclude_characters='\n\r,"\0'), max_size=5)


def csv_rows(text: str, *, quoted: bool = True) -> list[tuple[object, ...]]:
    return read_csv(Block(text.encode(), 1), NAMES, quoted=quoted).rows()


@given(st.lists(st.lists(field, min_size=1, max_size=5), min_size=1, max_size=6), st.booleans())
def test_any_csv_against_a_plain_split(lines: list[list[str]], quoted: bool) -> None:
    text = "\n".join(",".join(fields) for fields in lines) + "\n"
    expected: list[tuple[object, ...]] = []
    for number, fields in enumerate(lines, 1):
        if len(fields) > 3:
            expected.append((number, "too many fields", None, None, None))
        elif fields != [""]:
            values = [value or None for value in fields]
            expected.append((number, None, *values, *[None] * (3 - len(values))))
    assert csv_rows(text, quoted=quoted) == expected


def test_quotes_and_line_ends() -> None:
    assert csv_rows('1,"a,b","say ""so"""\r\n2,"",x\r\n') == [
        (1, None, "1", "a,b", 'say "so"'),
        (2, None, "2", None, "x"),
    ]
    # The line with the open quote is at fault, not those that follow.
    rows = csv_rows('1,"open,x\n2,b,c\n3,d,e\n')
    assert rows == [(1, "quotes that do not end", None, None, None), (2, None, "2", "b", "c"), (3, None, "3", "d", "e")]
    assert csv_rows('1,"open,x\n', quoted=False) == [(1, None, "1", '"open', "x")]


def test_empty_lines_count_as_lines_but_not_as_rows() -> None:
    assert csv_rows("\n1,2,3\n\n\n4,5,6\n\n") == [(2, None, "1", "2", "3"), (5, None, "4", "5", "6")]
    assert csv_rows(",,\n1,2,3\n") == [(1, None, None, None, None), (2, None, "1", "2", "3")]


values = st.one_of(st.none(), st.booleans(), st.integers(-(2**60), 2**60), st.text(max_size=4), st.lists(st.integers()))
objects = st.dictionaries(st.sampled_from(["a", "b", "c", "other"]), values).map(json.dumps)


@given(st.lists(st.one_of(objects, objects, st.sampled_from(["", "[1]", "null", '{"a": 1', "nonsense"])), min_size=1))
def test_any_json_against_the_standard_parser(lines: list[str]) -> None:
    expected: list[tuple[object, ...]] = []
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            read = json.loads(line)
        except ValueError:
            read = None
        if isinstance(read, dict):
            plain = [read.get(name) for name in NAMES]
            texts = [value or None if isinstance(value, str | None) else json.dumps(value) for value in plain]
            expected.append((number, None, *texts))
        else:
            expected.append((number, "not a JSON object", None, None, None))
    assert read_json(Block("\n".join(lines).encode(), 1), NAMES).rows() == expected


def test_a_line_that_is_no_text_is_at_fault() -> None:
    lines = b"1,2,3\n1,\xff,3\n"
    assert read_csv(Block(lines, first=10), NAMES).rows() == [
        (10, None, "1", "2", "3"),
        (11, "not UTF-8 text", None, None, None),
    ]
    block = Block(b'{"a": "x"}\n{"a": "\xff"}\n', first=10)
    assert [row[:3] for row in read_json(block, NAMES).rows()] == [(10, None, "x"), (11, "not UTF-8 text", None)]


def test_lines_that_look_packed_are_lines() -> None:
    assert read_csv(Block(b"\x1f\x8b,2,3\n", first=1), NAMES).rows() == [(1, "not UTF-8 text", None, None, None)]
    assert read_csv(Block(b"BZh,2,3\n", first=1), NAMES).rows() == [(1, None, "BZh", "2", "3")]


def test_quotes_with_a_backslash() -> None:
    assert csv_rows('1,"the \\"best\\" tea",x\n2,"say \\"so, he\\" did",y\n') == [
        (1, None, "1", 'the "best" tea', "x"),
        (2, None, "2", 'say "so, he" did', "y"),
    ]
    # A backslash at the end of a field is one, where that makes sense of the line.
    assert csv_rows('1,"C:\\dir\\",x\n2,5\\" pipe,"a ""b"""\n') == [
        (1, None, "1", "C:\\dir\\", "x"),
        (2, None, "2", '5\\" pipe', 'a "b"'),
    ]
    assert csv_rows('1,"open \\", x\n')[0][1] is None


def test_a_space_before_a_quote() -> None:
    assert csv_rows('1, "a, b", c\n') == [(1, None, "1", "a, b", "c")]
