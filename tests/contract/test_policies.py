"""The contract of policies, on every exact index."""

import numpy as np
import pytest

from fairsync.errors import InvalidInputError
from fairsync.policies import POLICIES, make_policy
from fairsync.policies.base import Feedback, Policy, Sample, Terms
from fairsync.policies.serialization import dump_state, load_state
from fairsync.retriever import FairRetriever
from worlds import make_world

INDEXES = ("exact", "one-hot")


@pytest.fixture(params=sorted(POLICIES))
def policy(request: pytest.FixtureRequest) -> Policy:
    return make_policy(str(request.param))


def feedback_for(policy: Policy, seed: int) -> tuple[Terms, Feedback]:
    rng = np.random.default_rng(seed)
    terms = Terms(np.array([5, 40, 90]), np.array([4, 4, 4]), k=4, horizon=100, batch_size=8)
    counts = rng.multinomial(32, [0.7, 0.2, 0.1])
    state = policy.start(terms)
    width = 4 + policy.lookahead(state, 4)
    sample = Sample(rng.integers(3, size=(8, width)), rng.normal(size=(8, width)).astype(np.float32))
    return terms, Feedback(8, counts, counts, 92, sample if policy.watches(state) else None)


def test_a_step_is_a_pure_function(policy: Policy) -> None:
    terms, feedback = feedback_for(policy, 0)
    state = policy.start(terms)
    before = dump_state(policy, state)
    one, two = policy.step(state, terms, feedback), policy.step(state, terms, feedback)
    assert dump_state(policy, state) == before
    assert dump_state(policy, one) == dump_state(policy, two)


def test_a_saved_state_continues_as_if_it_had_not_been_saved(policy: Policy) -> None:
    terms, feedback = feedback_for(policy, 1)
    state = policy.step(policy.start(terms), terms, feedback)
    restored = load_state(policy, dump_state(policy, state))
    _, more = feedback_for(policy, 2)
    one, two = policy.step(restored, terms, more), policy.step(state, terms, more)
    assert dump_state(policy, one) == dump_state(policy, two)


def test_prices_are_one_per_group_and_start_at_zero(policy: Policy) -> None:
    terms, feedback = feedback_for(policy, 3)
    state = policy.start(terms)
    assert policy.prices(state).tolist() == [0, 0, 0]
    after = policy.prices(policy.step(state, terms, feedback))
    assert after.shape == (3,)
    assert not np.isnan(after).any()


def test_a_group_that_lags_is_never_dearer_than_one_that_leads(policy: Policy) -> None:
    """Group 0 leads its floor, group 5 has had nothing of its own; every policy but none prefers group 5."""
    terms = Terms(np.full(6, 12), np.full(6, 2), k=2, horizon=60, batch_size=8)
    exposures = np.array([30, 4, 4, 1, 1, 0])
    state = policy.start(terms)
    width = 2 + policy.lookahead(state, 2)
    rng = np.random.default_rng(5)
    sample = Sample(np.sort(rng.integers(6, size=(20, width))), -np.sort(rng.random((20, width))).astype(np.float32))
    feedback = Feedback(20, exposures, exposures, 40, sample if policy.watches(state) else None)
    prices = policy.prices(policy.step(state, terms, feedback))
    if policy.name == "none":
        assert not prices.any()
    else:
        assert prices[5] < prices[0]
        assert prices[5] <= prices.min()


def test_without_floors_the_lists_are_those_of_plain_retrieval(policy: Policy) -> None:
    world = make_world(11, horizon=60)
    plain = FairRetriever(world.catalog, k=world.k, floors=0, horizon=60, policy="none").retrieve(world.users)
    retriever = FairRetriever(world.catalog, k=world.k, floors=0, horizon=60, policy=policy)
    found = retriever.retrieve(world.users)
    if policy.name != "fairsync":
        assert (found.ids == plain.ids).all()
        return
    # The paper's prices drift even if nothing was promised, which costs relevance: the highest price carries all slots.
    assert any(retriever.report().prices.values())
    assert found.relevance.sum() < plain.relevance.sum()


@pytest.mark.parametrize("index", INDEXES)
def test_calls_may_be_cut_anywhere(policy: Policy, index: str) -> None:
    """One call of 60, sixty of one, or anything between: the answers are the same."""
    world = make_world(12, horizon=50, tightness=0.8)

    def fresh() -> FairRetriever:
        return FairRetriever(
            world.catalog, k=world.k, floors=world.floors, horizon=50, policy=policy, batch_size=8, index=index
        )

    users = np.concatenate([world.users, world.users[:10]])
    whole, single, odd = fresh(), fresh(), fresh()
    expected = whole.retrieve(users)
    ones = [single.retrieve(user[None]) for user in users]
    parts = [odd.retrieve(part) for part in np.split(users, [3, 3, 20, 53])]
    for pieces, retriever in ((ones, single), (parts, odd)):
        assert (np.concatenate([piece.ids for piece in pieces]) == expected.ids).all()
        assert (np.concatenate([piece.relevance for piece in pieces]) == expected.relevance).all()
        assert retriever.report().exposures == whole.report().exposures
        assert retriever.report().prices == whole.report().prices


def test_every_index_gives_the_same_candidates(policy: Policy) -> None:
    world = make_world(13, horizon=60, tightness=0.8, interests=2)
    answers = [
        FairRetriever(world.catalog, k=world.k, floors=world.floors, horizon=60, policy=policy, index=index)
        .retrieve(world.users)
        .ids
        for index in sorted(INDEXES)
    ]
    assert all((answer == answers[0]).all() for answer in answers)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="Did you mean 'guaranteed'"):
        make_policy("garanteed")
    with pytest.raises(InvalidInputError, match="Choose one of 'none'"):
        make_policy("x")


def test_other_terms_may_follow(policy: Policy) -> None:
    """More groups and other floors: known groups keep their prices until the next step, new ones start at 0."""
    terms, feedback = feedback_for(policy, 4)
    state = policy.step(policy.start(terms), terms, feedback)
    more = Terms(np.array([5, 0, 90, 30, 0]), np.array([4, 4, 4, 2, 0]), k=4, horizon=100, batch_size=8)
    resumed = policy.resume(state, more)
    assert policy.prices(resumed).tolist() == [*policy.prices(state).tolist(), 0, 0]
    counts = np.array([20, 8, 4, 0, 0])
    after = policy.prices(policy.step(resumed, more, Feedback(8, counts, counts, 84)))
    assert after.shape == (5,)
    assert not np.isnan(after).any()
