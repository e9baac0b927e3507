"""Bodies: what was written is read, and no bytes at all make the reader stumble.

FAIRSYNC_FUZZ=60 tries sixty times as many.
"""

from __future__ import annotations

import os
import random
from typing import Any

import httpx
import msgpack
import numpy as np
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fairsync.candidates import Candidates
from fairsync.service.server.codec import JSON, MSGPACK, read_found, read_items, read_retrieve, write_array, write_found
from fairsync.service.server.problems import Problem
from fairsync.service.settings import HttpSettings
from service.running import running, small_keeper

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
    for reader in (lambda: read_retrieve(body, kind, LIMITS), lambda: read_items(body, kind, 100)):
        refused = None
        try:
            reader()
        except Problem as problem:
            refused = problem
        assert refused is None or 400 <= refused.status < 500


@given(st.binary(max_size=400))
@settings(max_examples=300 * MANY)
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    read(body, MSGPACK)
    read(body, JSON)


@given(BODIES)
@settings(max_examples=500 * MANY, suppress_health_check=[HealthCheck.too_slow])
def test_any_values_are_read_or_refused(values: dict[str, Any]) -> None:
    read(msgpack.packb(values), MSGPACK)


@given(hnp.arrays(np.float32, (3, 8), elements=st.floats(width=32)), st.data())
@settings(max_examples=100 * MANY)
def test_a_body_with_bytes_changed_is_read_or_refused(array: Any, data: st.DataObject) -> None:
    body = bytearray(msgpack.packb({"vectors": write_array(array), "k": 3, "request_ids": ["a", None, "b"]}))
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
    values: list[dict[str, Any]] = [{"vectors": write_array(vectors.astype(f"<f{size}")), "k": 3} for size in (2, 4, 8)]
    values.append({"vectors": write_array(vectors[:, 0]), "k": 3, "request_ids": ids})
    values.append({"histories": [["a", 1], [], ["b"]], "request_ids": ids})
    values.append({"embeddings": write_array(vectors[:, 0]), "groups": ["g"] * 3, "ids": [1, 2, 3]})
    as_json = [{"vectors": vectors.tolist(), "k": 3}, {"embeddings": vectors[:, 0].tolist(), "groups": [1], "ids": [2]}]
    return [(msgpack.packb(one), MSGPACK) for one in values] + [(orjson.dumps(one), JSON) for one in as_json]


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


@given(hnp.arrays(np.dtype("<f4"), hnp.array_shapes(min_dims=2, max_dims=3, max_side=6), elements=st.floats(width=32)))
def test_vectors_arrive_bit_for_bit(array: Any) -> None:
    asked, binary = read_retrieve(msgpack.packb({"vectors": write_array(array)}), MSGPACK, LIMITS)
    assert binary
    assert asked.vectors is not None
    assert asked.vectors.tobytes() == array.tobytes()
    assert asked.vectors.shape == array.shape


@given(
    st.integers(1, 4).flatmap(
        lambda k: st.tuples(
            hnp.arrays(np.int64, (3, k)),
            st.lists(st.lists(st.text(max_size=5), min_size=k, max_size=k), min_size=3, max_size=3),
            hnp.arrays(np.float64, (3, k), elements=st.floats(allow_nan=False, allow_infinity=False)),
        )
    )
)
def test_candidates_arrive_as_they_were(columns: Any) -> None:
    ids, groups, relevance = columns
    found = Candidates(ids, np.array(groups, dtype=object), relevance, np.array([1.0, 0.5, 1.0]))
    again, names = read_found(write_found(found, ["a", None, "c"], binary=True))
    told = orjson.loads(write_found(found, ["a", None, "c"], binary=False))["answers"]
    assert names == ["a", None, "c"]
    assert again.ids.tolist() == ids.tolist() == [one["ids"] for one in told]
    assert [one["groups"] for one in told] == groups
    assert again.relevance.tolist() == relevance.tolist() == [one["relevance"] for one in told]
    assert [one["degraded"] for one in told] == [False, True, False]


def test_a_service_survives_what_it_cannot_read() -> None:
    with running(small_keeper()) as service, httpx.Client(base_url=service.url) as http:

        @given(st.one_of(st.binary(max_size=200), BODIES.map(msgpack.packb)), st.sampled_from(["retrieve", "items"]))
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
