"""Histories into vectors: the latest known items count, and one long history does not make all others long."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest

from fairsync.catalog import Catalog
from fairsync.errors import InvalidInputError
from fairsync.service.client import Client
from fairsync.service.schema import JSON, LONGEST_HISTORY, MSGPACK, RetrieveRequest
from fairsync.service.server import app as app_module
from fairsync.service.server.codec import compact
from fairsync.service.server.histories import Histories, HistoryEncoder
from fairsync.service.server.problems import Problem
from service.running import make_settings, running, small_service

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray


class Last:
    """A model of ten items whose user vector is the last item, and how many there were."""

    name, dim, interests = "last", 2, 1
    item_ids = np.array([str(item) for item in range(10)])

    def user_vectors(self, histories: NDArray[np.integer]) -> NDArray[np.float32]:
        assert histories.size <= 1_024 * 1_000
        counts = (histories >= 0).sum(axis=1)
        last = histories[np.arange(len(histories)), np.maximum(counts - 1, 0)]
        return np.stack([last, counts], axis=1).astype(np.float32)

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError(name)


def test_unknown_items_are_left_out_and_numbers_are_words() -> None:
    histories = Histories(Last(), 2)
    assert histories.vectors([[1, "2", "strange", 3], ["7"], ["a", 4, "b"]]).tolist() == [[3, 3], [7, 1], [4, 1]]


def test_a_user_without_a_known_item_has_a_zero_vector() -> None:
    assert Histories(Last(), 2).vectors([[], ["5"], ["strange", "other"]]).tolist() == [[0, 0], [5, 1], [0, 0]]


def test_a_user_without_a_known_item_is_answered_as_a_cold_one(model: Held) -> None:
    model.may_go_on.set()
    service = small_service()
    with running(service) as one:
        body = {"histories": [["5"], [], ["strange"], ["3", "strange"]]}
        answers = httpx.post(f"{one.url}/v1/retrieve", json=body, timeout=60).json()["answers"]
        with Client(one.url, timeout=60) as client:
            found = client.retrieve_for(body["histories"])
    assert [answer["cold"] for answer in answers] == found.cold.tolist() == [False, True, True, False]
    vector = np.zeros(8)
    vector[:2] = 5, 1  # the mean of those before
    best = np.argsort(-(service.catalog.embeddings @ vector))[:3]
    assert [answers[i]["ids"] for i in (1, 2)] == [best.tolist()] * 2
    assert service.coordinator.totals().requests == 8


def test_one_long_history_does_not_make_all_long() -> None:
    """A body of a few megabytes must not become a table of gigabytes."""
    vectors = Histories(Last(), 2).vectors([[1] * 500_000 + [5], *([[2]] * 1_023)])
    assert vectors[0].tolist() == [5, 1_000]
    assert vectors[1].tolist() == [2, 1]


def test_a_model_of_another_size_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="2 dimensions"):
        Histories(Last(), 3)


def test_no_more_than_the_latest_items_are_looked_at() -> None:
    history: list[Any] = [1, *["unknown"] * LONGEST_HISTORY]
    assert Histories(Last(), 2).vectors([history, [2, *history[2:]]]).tolist() == [[0, 0], [2, 1]]
    kept = compact(RetrieveRequest(histories=[history]), 10).histories
    assert kept is not None
    assert len(kept[0]) == LONGEST_HISTORY


class Held(Last):
    """A model that computes when it may, and notes the last items of the users for whom it did."""

    dim = 8

    def __init__(self) -> None:
        self.asked, self.may_go_on, self.seen = threading.Event(), threading.Event(), list[list[int]]()

    def user_vectors(self, histories: NDArray[np.integer]) -> NDArray[np.float32]:
        self.asked.set()
        assert self.may_go_on.wait(60)
        vectors = np.zeros((len(histories), 8), dtype=np.float32)
        vectors[:, :2] = super().user_vectors(histories)
        self.seen.append(vectors[:, 0].astype(int).tolist())
        return vectors


async def vectors_of(
    encoder: HistoryEncoder, histories: list[list[Any]], caller: str, body_bytes: int
) -> NDArray[np.float32]:
    return (await encoder.vectors_and_items(histories, caller, body_bytes, None))[0]


def test_callers_take_turns() -> None:
    """A caller with many calls waits for itself, and another one only for the block that is being computed."""
    model = Held()
    encoder = HistoryEncoder(Histories(model, 8), 1_000_000)

    async def call() -> None:
        flood = [vectors_of(encoder, [[str(one)]] * 600, "flood", 100) for one in (1, 2, 3)]
        tasks = [asyncio.create_task(one) for one in flood]
        await asyncio.to_thread(model.asked.wait, 30)
        other = asyncio.create_task(vectors_of(encoder, [["7"]], "other", 100))
        await asyncio.sleep(0.01)
        model.may_go_on.set()
        assert [len(vectors) for vectors in await asyncio.gather(*tasks)] == [600, 600, 600]
        assert (await other)[0, 0] == 7

    asyncio.run(call())
    encoder.close()
    assert [len(block) for block in model.seen[:2]] == [256, 1]
    assert model.seen[1] == [7]


def test_histories_that_wait_are_bounded_and_emptied() -> None:
    """As lists they take many times the memory of a body."""
    model = Held()
    encoder = HistoryEncoder(Histories(model, 8), 1_000)

    async def call() -> None:
        histories: list[list[Any]] = [["1"]]
        first = asyncio.create_task(vectors_of(encoder, histories, "one", 1_000))
        await asyncio.sleep(0.01)
        with pytest.raises(Problem, match="Too many histories"):
            await vectors_of(encoder, [["2"]], "one", 1)
        others = [asyncio.create_task(vectors_of(encoder, [["3"]], f"{name}", 1_000)) for name in range(3)]
        await asyncio.sleep(0.01)
        with pytest.raises(Problem, match="Too many histories"):
            await vectors_of(encoder, [["2"]], "another", 1)
        model.may_go_on.set()
        await asyncio.gather(first, *others)
        assert histories == []
        assert (await vectors_of(encoder, [["4"]], "one", 1_000))[0, 0] == 4

    asyncio.run(call())
    encoder.close()


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    """A model that every service of the test uses."""
    held = Held()
    encoder = HistoryEncoder(Histories(held, 8), 16_000_000)
    monkeypatch.setattr(app_module, "load_histories", lambda settings, dim: encoder)
    yield held
    held.may_go_on.set()


def test_the_service_stays_ready_beside_a_flood_of_histories(model: Held) -> None:
    """Planning and the checks of readiness must not wait in one queue with histories."""
    service = small_service()
    checks = threading.Semaphore(0)
    check_ready = service.check_ready

    def counted() -> None:
        check_ready()
        checks.release()

    service.check_ready = counted  # type: ignore[method-assign]
    with running(service, refresh_seconds=0.01) as one, ThreadPoolExecutor(40) as clients:

        def send(_: int) -> int:
            return httpx.post(f"{one.url}/v1/retrieve", json={"histories": [["1"]]}, timeout=60).status_code

        answers = [clients.submit(send, number) for number in range(40)]
        try:
            assert model.asked.wait(240)
            time.sleep(0.5)  # until all have arrived
            while checks.acquire(blocking=False):
                pass
            for _ in range(3):
                assert checks.acquire(timeout=240), "readiness is not checked any more"
        finally:
            model.may_go_on.set()
        assert {answer.result() for answer in answers} <= {200, 503}
        assert 200 in {answer.result() for answer in answers}


NESTED = b"[" * 5_000 + b"]" * 5_000
HOSTILE = [
    (b'{"histories": [["1", 2, "unknown", "' + b"x" * 500 + b'"]]}', 200),
    (b'{"histories": [[]]}', 200),
    (b'{"histories": [["\\u0000", "1\\u0000", "\\u202e", "\\ud83d\\ude00", "\\n", " 1"]]}', 200),
    (b'{"histories": [[' + b"1," * 400_000 + b"1]]}", 200),
    (b'{"histories": [' + b'["1"],' * 999 + b'["1"]]}', 200),
    (b'{"histories": [[9223372036854775807, -9223372036854775807]]}', 200),
    (b'{"histories": [[' + b"9" * 5_000 + b"]]}", 422),
    (b'{"histories": [["' + b"x" * 501 + b'"]]}', 422),
    (b'{"histories": [[""]]}', 422),
    (b'{"histories": []}', 422),
    (b'{"histories": {}}', 422),
    (b'{"histories": [{}]}', 422),
    (b'{"histories": ["abc"]}', 422),
    (b'{"histories": [[["1"]]]}', 422),
    (b'{"histories": [[1.5]]}', 422),
    (b'{"histories": [[true]]}', 422),
    (b'{"histories": [[null]]}', 422),
    (b'{"histories": [["1"]], "vectors": [[1, 2]]}', 422),
    (b'{"histories": [["1"]], "request_ids": ["a", "b"]}', 422),
    (b'{"histories": [["1"]], "k": 0}', 422),
    (b'{"histories": ' + NESTED + b"}", 422),
    (b'{"histories": [["\xff"]]}', 400),
    (b'{"histories": [["\\ud800"]]}', 400),
    (b'{"histories": [["1"]', 400),
]


def test_hostile_histories_are_answered(model: Held) -> None:
    model.may_go_on.set()
    with (
        running(small_service(), make_settings({"max_users": 1_000})) as one,
        httpx.Client(base_url=one.url, timeout=60) as client,
    ):
        for body, status in HOSTILE:
            answer = client.post("/v1/retrieve", content=body, headers={"content-type": JSON}, timeout=60)
            assert answer.status_code == status, (body[:80], answer.text)
            assert status != 200 or len(answer.json()["answers"]) == len(json.loads(body)["histories"])
        packed = bytes([0x81, 0xA9]) + b"histories" + bytes([0xDD, 0xFF, 0xFF, 0xFF, 0xFF])
        answer = client.post("/v1/retrieve", content=packed, headers={"content-type": MSGPACK}, timeout=60)
        assert answer.status_code == 400
        assert client.get("/ready").status_code == 200


class Constant(Last):
    """A model that gives every user the same vector."""

    dim = 8

    def user_vectors(self, histories: NDArray[np.integer]) -> NDArray[np.float32]:
        return np.full((len(histories), 8), 0.5, dtype=np.float32)


@pytest.mark.parametrize("kind", ["words", "numbers"])
def test_what_is_in_a_history_is_left_out(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over HTTP and by the client, unless the request says otherwise. Ids of histories may be numbers or words."""
    encoder = HistoryEncoder(Histories(Constant(), 8), 16_000_000)
    monkeypatch.setattr(app_module, "load_histories", lambda settings, dim: encoder)
    plain = small_service().catalog
    ids = plain.ids if kind == "numbers" else plain.ids.astype(str)
    catalog = Catalog(plain.embeddings, plain.labels_of(plain.group_of), ids)
    with running(small_service(catalog=catalog)) as one, Client(one.url, timeout=60) as client:
        best = client.retrieve([[0.5] * 8], k=10).ids[0].tolist()

        def ask(**body: Any) -> list[dict[str, Any]]:
            answer = httpx.post(f"{one.url}/v1/retrieve", json={"k": 4, **body}, timeout=60)
            assert answer.status_code == 200, answer.text
            answers: list[dict[str, Any]] = answer.json()["answers"]
            return answers

        first, second, third = best[:3]
        found = ask(histories=[[str(first), "gone", int(second)], [], [third] * 3])
        assert [answer["ids"] for answer in found] == [
            best[2:6], best[:4], [name for name in best if name != third][:4],
        ]  # fmt: skip
        assert [answer["unknown_excluded"] for answer in found] == [0, 0, 0], "the caller did not exclude it"
        both = ask(histories=[[first], [first]], exclude=[[second], []])
        assert [answer["ids"] for answer in both] == [best[2:6], best[1:5]]
        assert ask(histories=[[first]], exclude_history=False)[0]["ids"] == best[:4]
        assert client.retrieve_for([[first]], k=4).ids[0].tolist() == best[1:5]
        assert client.retrieve_for([[first]], k=4, exclude_history=False).ids[0].tolist() == best[:4]
        assert client.retrieve_for([[first]], k=4, exclude=[[second]]).ids[0].tolist() == best[2:6]
        whole = ask(vectors=[[0.5] * 8], exclude_history=True)
        assert whole[0]["ids"] == best[:4]
