"""States survive a restart: those of every policy, and of policies that users write. Bytes never execute code."""

import io
import json
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from fairsync.catalog import Catalog
from fairsync.coordination.coordinator import Coordinator
from fairsync.coordination.front_end import FrontEnd
from fairsync.errors import InvalidInputError
from fairsync.ledger import MemoryLedger
from fairsync.policies import POLICIES, Feedback, Guaranteed, NoPolicy, Policy, Sample, Terms, make_policy
from fairsync.policies.serialization import dump_state, load_state

TERMS = Terms(np.array([5, 40, 90]), np.array([4, 4, 4]), k=4, horizon=100, batch_size=8)


class Smoothed(NamedTuple):
    rate: float
    steps: int


@dataclass(frozen=True)
class CustomState:
    prices: npt.NDArray[np.float64]
    smoothed: tuple[Smoothed, ...]
    label: str | None


class Custom:
    """A policy as a user may write it: the price of a group rises with its exposures."""

    name = "custom"
    keeps_floors = False
    memory = 0
    state_classes: tuple[type, ...] = (CustomState, Smoothed)

    def start(self, terms: Terms) -> CustomState:
        return CustomState(np.zeros(len(terms.floors)), (Smoothed(0.0, 0),), None)

    def lookahead(self, state: CustomState, k: int) -> int:
        return 0

    def watches(self, state: CustomState) -> bool:
        return False

    def prices(self, state: CustomState) -> npt.NDArray[np.float64]:
        return state.prices

    def step(self, state: CustomState, terms: Terms, feedback: Feedback) -> CustomState:
        (smoothed,) = state.smoothed
        return CustomState(feedback.exposures / 100, (Smoothed(0.5, smoothed.steps + 1),), "learnt")

    def resume(self, state: CustomState, terms: Terms) -> CustomState:
        return state


class Undeclared(Custom):
    """Its state classes are unknown, so that a saved state could not be loaded."""

    state_classes = ()


def assert_same(one: Any, other: Any) -> None:
    """Compare two states to the last bit and class."""
    assert type(one) is type(other)
    if isinstance(one, np.ndarray):
        assert one.dtype == other.dtype
        assert one.tobytes() == other.tobytes()
    elif isinstance(one, tuple):
        for part, same in zip(one, other, strict=True):
            assert_same(part, same)
    elif hasattr(one, "__dataclass_fields__"):
        for name in one.__dataclass_fields__:
            assert_same(getattr(one, name), getattr(other, name))
    else:
        assert one == other


def make_feedback(policy: Policy, state: Any, seed: int, remaining: int) -> Feedback:
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(32, [0.7, 0.2, 0.1])
    width = 4 + policy.lookahead(state, 4)
    groups, relevance = rng.integers(3, size=(8, width)), rng.normal(size=(8, width)).astype(np.float32)
    sample = Sample(groups, relevance, np.zeros(3)) if policy.watches(state) else None
    return Feedback(8, counts, counts, remaining, sample)


@pytest.mark.parametrize("name", [*sorted(POLICIES), "custom"])
def test_a_state_comes_back_as_it_was_and_the_policy_continues_from_it(name: str) -> None:
    policy: Policy = Custom() if name == "custom" else make_policy(name)
    state = policy.start(TERMS)
    for turn in range(4):  # from the first state to one of the last batch
        restored = load_state(policy, dump_state(policy, state))
        assert_same(restored, state)
        feedback = make_feedback(policy, state, turn, remaining=[92, 84, 4, 0][turn])
        one, other = (policy.step(each, TERMS, feedback) for each in (state, restored))
        assert_same(one, other)
        state = one


def test_a_state_of_a_full_sample_comes_back() -> None:
    policy, rng = Guaranteed(), np.random.default_rng(0)
    state = policy.start(TERMS)
    sample = Sample(rng.integers(3, size=(300, 12)), rng.normal(size=(300, 12)).astype(np.float32))
    state = policy.calibrate(state, TERMS, Feedback(0, np.zeros(3, int), np.zeros(3, int), 100, sample))
    assert state.solution is not None
    assert state.opening is not None
    assert_same(load_state(policy, dump_state(policy, state)), state)


def test_a_coordinator_continues_from_the_state_of_a_policy_that_a_user_wrote() -> None:
    rng = np.random.default_rng(1)
    catalog, ledger = Catalog(rng.normal(size=(30, 4)), np.arange(30) % 3), MemoryLedger(3)
    first = Coordinator(catalog, k=4, horizon=100, policy=Custom(), batch_size=8, ledger=ledger)
    FrontEnd(catalog, first).retrieve(rng.normal(size=(16, 4)))
    first.save()
    again = Coordinator(catalog, k=4, horizon=100, policy=Custom(), batch_size=8, ledger=ledger)
    assert first.prices().any()
    assert again.prices().tolist() == first.prices().tolist()


def test_a_state_that_cannot_be_saved_is_refused_when_a_coordinator_is_made() -> None:
    catalog = Catalog(np.eye(3), ["a", "b", "c"])
    with pytest.raises(InvalidInputError, match=r"holds a CustomState.*state_classes"):
        Coordinator(catalog, k=1, policy=Undeclared())


@pytest.mark.parametrize("value", [{1: 2}, [1.0], object(), np.array([object()]), Smoothed(1.0, 2), lambda: None])
def test_values_that_could_not_be_loaded_are_refused(value: Any) -> None:
    with pytest.raises(InvalidInputError, match="cannot be saved"):
        dump_state(NoPolicy(), (1, value))


def test_a_class_of_the_same_name_is_not_taken_for_another() -> None:
    @dataclass(frozen=True)
    class GuaranteedState:
        code: str

    with pytest.raises(InvalidInputError, match="holds a GuaranteedState"):
        dump_state(Guaranteed(), GuaranteedState("x"))


def test_only_declared_classes_are_made_from_bytes() -> None:
    buffer = io.BytesIO()
    shape = json.dumps({"format": 1, "state": {"class": "Popen", "fields": {"args": "true"}}})
    np.savez(buffer, shape=np.frombuffer(shape.encode(), dtype=np.uint8))
    with pytest.raises(InvalidInputError, match="Popen"):
        load_state(Guaranteed(), buffer.getvalue())
    saved = dump_state(Custom(), Custom().start(TERMS))
    with pytest.raises(InvalidInputError, match="CustomState"):
        load_state(Guaranteed(), saved)


@pytest.mark.parametrize("data", [b"", b"nothing", b"PK\x03\x04"])
def test_damaged_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidInputError, match="cannot be read"):
        load_state(NoPolicy(), data)


def test_another_format_is_refused() -> None:
    buffer = io.BytesIO()
    np.savez(buffer, shape=np.frombuffer(json.dumps({"format": 9, "state": 1}).encode(), dtype=np.uint8))
    with pytest.raises(InvalidInputError, match="format 9"):
        load_state(NoPolicy(), buffer.getvalue())


def test_fields_that_are_missing_have_their_defaults() -> None:
    """A state that an earlier version saved, with fewer fields."""
    policy = Guaranteed()
    state = replace(policy.start(TERMS), seen=7)
    saved = json.loads(np.load(io.BytesIO(dump_state(policy, state)))["shape"].tobytes())
    del saved["state"]["fields"]["variances"]
    buffer = io.BytesIO()
    shape = np.frombuffer(json.dumps(saved).encode(), dtype=np.uint8)
    np.savez(buffer, shape=shape, a0=state.subsidies, a1=state.target)
    assert_same(load_state(policy, buffer.getvalue()), state)
