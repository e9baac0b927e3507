"""Amazon files exactly as published: JSON lines, and lines of Python literals that are never run."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from fairsync.data.amazon import read_amazon
from fairsync.data.log import NO_GROUP, Log
from fairsync.data.prepare import prepare
from fairsync.errors import InvalidInputError

META: list[dict[str, Any]] = [
    {"asin": "B01", "categories": [["Beauty", "Hair", "Combs"], ["Beauty", "Gifts"]], "title": "Comb"},
    {
        "asin": "B02",
        "title": "It's",
        "description": "a 'categories': [['Fake']] trap",
        "categories": [["Beauty", "Soap"]],
    },
    {"asin": "B03", "imUrl": "u", "categories": [["Beauty", 'Odd ]] "name"']], "related": {"also_bought": ["B01"]}},
    {"asin": "B04", "description": "no categories"},
    {"asin": "B05", "categories": [[]]},
    {"title": "asin comes last", "categories": [["Beauty"]], "asin": "B06"},
    {"asin": "B09", "categories": [["Beauty", "Nobody reviewed it"]]},
]
GROUPS = {"B01": "Combs", "B02": "Soap", "B03": 'Odd ]] "name"', "B06": "Beauty"}


def review(user: str, item: str, time: object) -> str:
    return json.dumps(
        {
            "reviewerID": user,
            "asin": item,
            "reviewerName": 'A. "B" C',
            "helpful": [3, 4],
            "reviewText": "Zażółć\nline, comma",
            "overall": 5.0,
            "summary": "s",
            "unixReviewTime": time,
            "reviewTime": "01 30, 2014",
        }
    )


REVIEWS = [
    review(user, item, 1_390_000_000 + 10 * n) for n, user in enumerate("AB") for item in ("B01", "B02", "B03", "B06")
]


def write(
    folder: Path, reviews: list[str], meta: list[str] | None = None, *, packed: bool = False
) -> tuple[Path, Path]:
    texts = {"reviews_Beauty_5.json": reviews, "meta_Beauty.json": meta or [repr(one) for one in META]}
    paths = []
    for name, lines in texts.items():
        text = ("\n".join(lines) + "\n").encode()
        path = folder / (f"{name}.gz" if packed else name)
        path.write_bytes(gzip.compress(text) if packed else text)
        paths.append(path)
    return paths[0], paths[1]


def rows(log: Log) -> list[tuple[str, str, int]]:
    return [
        (log.user_ids[int(user)], log.item_ids[int(item)], int(time))
        for part in log.parts
        for user, item, time in zip(*part, strict=True)
    ]


@pytest.mark.parametrize("packed", [False, True])
def test_reviews_and_leaf_categories(packed: bool, tmp_path: Path) -> None:
    log = read_amazon(*write(tmp_path, REVIEWS, packed=packed))
    read = [json.loads(line) for line in REVIEWS]
    assert rows(log) == [(one["reviewerID"], one["asin"], one["unixReviewTime"]) for one in read]
    assert dict(zip(log.item_ids, log.item_groups, strict=True)) == GROUPS
    assert (log.raw_rows, log.bad_rows, log.has_clock) == (8, {}, True)


def test_bad_rows_are_counted_by_reason_with_the_first_line(tmp_path: Path) -> None:
    bad = [
        "{broken",
        review("A", "B01", None),
        review("A", "B01", "soon"),
        review("A", "B01", -5),
        review("", "B01", 5),
        json.dumps({"reviewerID": "A", "unixReviewTime": 5}),
        "{also broken",
        review("C", "B04", 5),
        review("C", "B05", 5),
        review("C", "B08", 5),
    ]
    log = read_amazon(*write(tmp_path, [*REVIEWS, "", *bad, *REVIEWS]))
    assert rows(log) == rows(read_amazon(*write(tmp_path, REVIEWS))) * 2
    counts = {
        "no item": 1,
        "no time": 1,
        "no user": 1,
        "not a JSON object": 2,
        "time before 1970": 1,
        "time is not a number": 1,
    }
    assert log.bad_rows == {**counts, NO_GROUP: 3}
    assert log.raw_rows == 26
    assert log.first_bad["not a JSON object"] == "reviews_Beauty_5.json:10"
    assert log.first_bad["no item"] == "reviews_Beauty_5.json:15"
    assert log.first_bad[NO_GROUP] == "item B04"


def test_a_literal_is_never_run(tmp_path: Path) -> None:
    evil = "{'asin': 'B01', 'categories': [[__import__('os').getcwd()]]}"
    with pytest.raises(InvalidInputError, match=r"meta_Beauty.json:2: cannot be read"):
        read_amazon(*write(tmp_path, REVIEWS, [repr(META[0]), evil]))


@pytest.mark.parametrize(
    "line", ["{'asin': 'B01', 'categories': [['Bea", "[1, 2]", "{'categories': [['A']]}", "{" * 5000]
)
def test_a_broken_line_of_metadata_is_told(line: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"meta_Beauty.json:8: cannot be read .* Python literal"):
        read_amazon(*write(tmp_path, REVIEWS, [*(repr(one) for one in META), line]))


def test_a_wrong_file_is_told_with_what_it_should_be(tmp_path: Path) -> None:
    _, meta = write(tmp_path, REVIEWS)
    with pytest.raises(InvalidInputError, match=r"meta_Beauty.json:1\).*reviewerID, asin and unixReviewTime"):
        read_amazon(meta, meta)
    with pytest.raises(
        InvalidInputError, match=r"8 of the first 8 rows .* item without a group .*Do the two files belong together"
    ):
        read_amazon(*write(tmp_path, REVIEWS, [repr(META[-1])]))


def test_a_download_that_broke_off_is_told(tmp_path: Path) -> None:
    reviews, meta = write(tmp_path, REVIEWS, packed=True)
    meta.write_bytes(meta.read_bytes()[:-20])
    with pytest.raises(InvalidInputError, match="not fetched whole"):
        read_amazon(reviews, meta)


def test_prepared(tmp_path: Path) -> None:
    data = prepare(read_amazon(*write(tmp_path, REVIEWS)), "beauty", least_interactions=2, least_items=1)
    assert data.item_ids.tolist() == sorted(GROUPS)
    assert data.item_groups.tolist() == [GROUPS[item] for item in sorted(GROUPS)]
    assert data.user_ids.tolist() == ["A", "B"]
    assert [one.tolist() for one in data.sequences] == [[0, 1, 2, 3]] * 2  # equal times: in the order of the file
