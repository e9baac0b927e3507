"""The loop around the guard, in a few lines, with users, prices and exclusions that make trouble."""

import numpy as np
import numpy.typing as npt

from fairsync import guard
from fairsync.promises.shown import Shown
from fairsync.search import Hits, Index, make_index
from fairsync.search.eligibility import Eligibility
from fairsync.search.filtering import search_eligible
from overlap_worlds import OverlapWorld, plan


class Driver:
    """The loop around the guard, in a few lines: search under prices, guard, counts."""

    def __init__(self, world: OverlapWorld, index: Index, rng: np.random.Generator) -> None:
        self.world, self.index, self.rng = world, index, rng
        self.certificate = world.certificate
        self.exposures = np.zeros(len(world.terms.floors), dtype=np.int64)
        self.left, self.forced = world.terms.horizon, 0

    @property
    def missing(self) -> npt.NDArray[np.int64]:
        missing: npt.NDArray[np.int64] = np.maximum(self.world.terms.floors - self.exposures, 0)
        return missing

    @property
    def room(self) -> npt.NDArray[np.int64] | None:
        return None if self.world.terms.caps is None else self.world.terms.caps - self.exposures

    def serve(
        self,
        users: npt.NDArray[np.float64],
        prices: npt.NDArray[np.float64],
        width: int,
        eligible: Eligibility | None = None,
    ) -> Hits:
        world, terms = self.world, self.world.terms
        atom_prices = terms.atom_prices(prices)
        hits = self.search(users, atom_prices, min(width, len(world.catalog)), eligible)
        first = hits.rows[:, : terms.k]
        counts = np.bincount(world.catalog.group_of[first[first >= 0]], minlength=terms.n_atoms)
        needed = guard.needs_guard(
            terms, self.missing, prices, terms.exposures(counts), len(users), self.left, None, self.certificate,
            self.room, Shown.in_all(counts),
        )  # fmt: skip
        found, forced, after = guard.keep_promises(
            lambda i, p, n: self.search(users[i : i + 1], p, n, eligible and eligible.take(np.array([i]))),
            world.catalog, terms, atom_prices, hits, self.missing, self.left, terms.k, eligible,
            promise_prices=prices, certificate=self.certificate, room=self.room,
        )  # fmt: skip
        if not needed:  # then the guard changes nothing
            assert (found.rows == hits.rows[:, : terms.k]).all()
            assert (after == np.maximum(self.certificate - counts, 0)).all()
            assert forced == 0
        self.exposures = self.exposures + world.recount(found.rows)
        self.left, self.certificate, self.forced = self.left - len(users), after, self.forced + forced
        return found

    def search(
        self,
        users: npt.NDArray[np.float64],
        prices: npt.NDArray[np.float64],
        n: int,
        eligible: Eligibility | None,
    ) -> Hits:
        if eligible is None:
            return self.index.search(users[:, None], prices, n)
        return search_eligible(self.index, users[:, None], prices, n, eligible)

    def users(self, n: int) -> npt.NDArray[np.float64]:
        """Return users who want anything, or only what is in no plan, or only what is capped."""
        scores = self.rng.normal(size=(n, len(self.world.catalog)))
        whim = self.rng.integers(4)
        atom_of = self.world.catalog.group_of
        if whim == 1:
            scores -= 5.0 * (self.certificate[atom_of] > 0)
        elif whim == 2 and self.world.terms.caps is not None:
            capped = self.world.terms.caps < 2**61
            scores += 5.0 * self.world.members[capped].any(axis=0)
        elif whim == 3:
            scores += 5.0 * self.rng.normal(size=len(self.world.catalog))
        return scores

    def excluded(self) -> npt.NDArray[np.int64]:
        """Return items that a request excludes: any of them, or those that the certificate rests on."""
        weights = self.rng.random(len(self.world.catalog))
        if self.rng.random() < 0.5:
            weights += self.certificate[self.world.catalog.group_of]
        return np.argsort(-weights)[: self.world.terms.max_exclude]

    def prices(self) -> npt.NDArray[np.float64]:
        """Return prices that help, do nothing, or mislead."""
        scale = float(self.rng.choice([0.0, 0.3, 3.0]))
        size = len(self.exposures)
        sign = np.where(self.rng.random(size) < 0.7, -1.0, 1.0)
        prices: npt.NDArray[np.float64] = self.rng.random(size) * scale * sign
        return prices


def play(world: OverlapWorld, seed: int, index: str | Index = "exact", *, renews: bool = True) -> Driver:
    """Serve a horizon, and check what was promised by counting the items of all lists."""
    rng, terms = np.random.default_rng(seed), world.terms
    driver = Driver(world, make_index(index, world.catalog) if isinstance(index, str) else index, rng)
    batch, width = int(rng.choice([1, 3, 16, 64])), terms.k + int(rng.integers(4))
    while driver.left:
        users, eligible = driver.users(min(batch, driver.left)), None
        if terms.max_exclude:
            excluded = [driver.excluded() for _ in users]
            eligible = Eligibility.of(len(world.catalog), [None] * len(users), excluded)
        found = driver.serve(users, driver.prices(), width, eligible)
        for rows in found.rows.tolist():
            assert len(set(rows)) == terms.k
            assert min(rows) >= 0
            if terms.list_limits is not None:
                assert (world.recount(np.array(rows)) <= terms.list_limits).all()
        if renews and rng.random() < 0.2:  # another certificate, just as good
            other = plan(terms, driver.left, rng.normal(size=terms.n_atoms), driver.missing, driver.room)
            assert other is not None
            driver.certificate = other
    assert (driver.exposures >= terms.floors).all()
    if terms.caps is not None:
        assert (driver.exposures <= terms.caps).all()
    return driver
