"""Bodies: what was written is read, and no bytes at all make the reader stumble.

FAIRSYNC_FUZZ=60 tries sixty times as many.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Any

import httpx
import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fairsync.candidates import Candidates
from fairsync.errors import InvalidInputError
from fairsync.service.schema import JSON, MSGPACK, NumberArray, RetrieveColumns, RetrieveRequest, UpsertItems
from fairsync.service.server.codec import decode, embeddings_of, encode_candidates, users_of
from fairsync.service.server.problems import Problem, problem_of
from fairsync.service.settings import HttpSettings
from service.running import running, small_service

if TYPE_CHECKING:
    from collections.abc import Callable

pack = msgspec.msgpack.encode
MANY = int(os.environ.get("FAIRSYNC_FUZZ", "1"))
LIMITS = HttpSettings(max_users=100, max_k=100)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), st.text(max_size=9), st.binary(max_size=64)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=12,
)
ARRAYS = st.fixed_dictionaries(
    {
        "dtype": st.one_of(st.sampled_from(["<f2", "<f4", "<f8", "<i8", "f4", "O", ">f4"]), SCALARS),
        "shape": st.one_of(st.lists(st.one_of(st.integers(-2, 9), st.just(2**62)), max_size=4), VALUES),
        "data": st.one_of(st.binary(max_size=300), VALUES),
    }
)
BODIES = st.dictionaries(
    st.sampled_from(["vectors", "histories", "k", "request_ids", "embeddings", "groups", "ids", "other"]),
    st.one_of(VALUES, ARRAYS),
)


def read(body: bytes, kind: str) -> None:
    """Read a body in every way there is: it may be refused, with a status of the caller's fault, and nothing else."""
    readers: list[Callable[[], object]] = [
        lambda: users_of(decode(body, kind, RetrieveRequest), LIMITS),
        lambda: embeddings_of(decode(body, kind, UpsertItems), 100),
    ]
    for reader in readers:
        refused = None
        try:
            reader()
        except (Problem, InvalidInputError) as error:
            refused = problem_of(error)
        assert refused is None or 400 <= refused.status < 500


@given(st.binary(max_size=400))
@settings(max_examples=300 * MANY)
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    read(body, MSGPACK)
    read(body, JSON)


@given(BODIES)
@settings(max_examples=500 * MANY, suppress_health_check=[HealthCheck.too_slow])
def test_any_values_are_read_or_refused(values: dict[str, Any]) -> None:
    read(pack(values), MSGPACK)


@given(hnp.arrays(np.float32, (3, 8), elements=st.floats(width=32)), st.data())
@settings(max_examples=100 * MANY)
def test_a_body_with_bytes_changed_is_read_or_refused(array: Any, data: st.DataObject) -> None:
    body = bytearray(pack({"vectors": NumberArray.of(array), "k": 3, "request_ids": ["a", None, "b"]}))
    for _ in range(data.draw(st.integers(0, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    read(bytes(body[: data.draw(st.integers(0, len(body)))]), MSGPACK)
    read(bytes(body), MSGPACK)


def mutated(body: bytes, rng: random.Random) -> bytes:
    """Return a body with bytes changed, put in, taken out, doubled or cut off."""
    new = bytearray(body)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(new) + 1)
        what = rng.randrange(6)
        if what == 0 and at < len(new):
            new[at] = rng.randrange(256)
        elif what == 1 and at < len(new):
            new[at] ^= 1 << rng.randrange(8)
        elif what == 2:
            new[at:at] = rng.randbytes(rng.randint(1, 8))
        elif what == 3:
            del new[at : at + rng.randint(1, 20)]
        elif what == 4:
            new[at:at] = new[at : at + rng.randint(1, 40)]
        elif rng.random() < 0.2:
            del new[at:]
    return bytes(new)


def sound_bodies() -> list[tuple[bytes, str]]:
    vectors = np.linspace(-1, 1, 48).reshape(3, 2, 8)
    ids = ["a", None, "b"]
    values: list[dict[str, Any]] = [
        {"vectors": NumberArray.of(vectors.astype(f"<f{size}")), "k": 3} for size in (2, 4, 8)
    ]
    values.append({"vectors": NumberArray.of(vectors[:, 0]), "k": 3, "request_ids": ids})
    values.append({"histories": [["a", 1], [], ["b"]], "request_ids": ids})
    values.append({"embeddings": NumberArray.of(vectors[:, 0]), "groups": ["g"] * 3, "ids": [1, 2, 3]})
    as_json = [{"vectors": vectors.tolist(), "k": 3}, {"embeddings": vectors[:, 0].tolist(), "groups": [1], "ids": [2]}]
    return [(pack(one), MSGPACK) for one in values] + [(msgspec.json.encode(one), JSON) for one in as_json]


def test_a_body_that_was_sound_is_read_or_refused() -> None:
    rng = random.Random(5)
    bodies = sound_bodies()
    for _ in range(2_000 * MANY):
        body, kind = rng.choice(bodies)
        read(mutated(body, rng), kind)


@pytest.mark.parametrize("body", [b"\x91" * 100_000, b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"[" * 100_000])
def test_bombs_are_refused(body: bytes) -> None:
    read(body, MSGPACK)
    read(body, JSON)


def test_one_vector_without_a_list_around_it_is_refused_in_the_words_of_the_api() -> None:
    body = pack(RetrieveRequest(vectors=NumberArray.of(np.ones(8))))
    with pytest.raises(Problem, match="one list of numbers per user"):
        users_of(decode(body, MSGPACK, RetrieveRequest), LIMITS)


@given(hnp.arrays(np.dtype("<f4"), hnp.array_shapes(min_dims=2, max_dims=3, max_side=6), elements=st.floats(width=32)))
def test_vectors_arrive_bit_for_bit(array: Any) -> None:
    body = pack(RetrieveRequest(vectors=NumberArray.of(array)))
    vectors = users_of(decode(body, MSGPACK, RetrieveRequest), LIMITS)
    assert vectors is not None
    assert vectors.tobytes() == array.tobytes()
    assert vectors.shape == array.shape


@given(
    st.integers(1, 4).flatmap(
        lambda k: st.tuples(
            hnp.arrays(np.int64, (3, k)),
            st.lists(st.lists(st.text(min_size=1, max_size=5), min_size=k, max_size=k), min_size=3, max_size=3),
            hnp.arrays(np.float64, (3, k), elements=st.floats(allow_nan=False, allow_infinity=False)),
        )
    )
)
def test_candidates_arrive_as_they_were(columns: Any) -> None:
    ids, groups, relevance = columns
    found = Candidates(ids, np.array(groups, dtype=object), relevance, np.array([1.0, 0.5, 1.0]))
    again = decode(encode_candidates(found, ["a", None, "c"], MSGPACK), MSGPACK, RetrieveColumns)
    told = msgspec.json.decode(encode_candidates(found, ["a", None, "c"], JSON))["answers"]
    assert again.request_ids == ["a", None, "c"]
    assert isinstance(again.ids, NumberArray)
    assert isinstance(again.relevance, NumberArray)
    assert again.ids.to_numpy().tolist() == ids.tolist() == [one["ids"] for one in told]
    assert [one["groups"] for one in told] == groups == again.groups
    assert isinstance(again.relevance, NumberArray)
    assert again.relevance.to_numpy().tolist() == relevance.tolist() == [one["relevance"] for one in told]
    assert [one["degraded"] for one in told] == [False, True, False]


def test_a_service_survives_what_it_cannot_read() -> None:
    with running(small_service()) as service, httpx.Client(base_url=service.url, timeout=60) as http:

        @given(
            st.one_of(st.binary(max_size=200), BODIES.map(pack)),
            st.sampled_from(["retrieve", "items"]),
        )
        @settings(max_examples=100 * MANY, suppress_health_check=[HealthCheck.too_slow], deadline=None)
        def fuzz(body: bytes, path: str) -> None:
            method = "POST" if path == "retrieve" else "PUT"
            answer = http.request(method, f"/v1/{path}", content=body, headers={"content-type": MSGPACK})
            assert 400 <= answer.status_code < 500

        fuzz()
        rng, bodies = random.Random(6), sound_bodies()
        for _ in range(100 * MANY):
            body, kind = rng.choice(bodies)
            answer = http.post("/v1/retrieve", content=mutated(body, rng), headers={"content-type": kind})
            assert answer.status_code in (200, 400, 422)
        assert http.get("/ready").status_code == 200
