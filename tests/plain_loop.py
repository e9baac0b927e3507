"""The plainest possible loop: one request at a time, every item scored, nothing clever."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import plain
from fairsync.catalog import Catalog
from fairsync.policies import Feedback, Sample, Terms, make_policy


@dataclass
class PlainLoop:
    """Retrieves like ``FairRetriever``; policies are shared with it, all else is written again."""

    catalog: Catalog
    terms: Terms
    policy_name: str

    def retrieve(self, users: npt.NDArray[np.float64]) -> list[list[int]]:
        catalog, terms, policy = self.catalog, self.terms, make_policy(self.policy_name)
        group = catalog.group_of.tolist()
        state = policy.start(terms)
        exposures = [0] * len(terms.floors)
        batch: list[tuple[list[int], list[float], list[int]]] = []
        served, answers = 0, []
        for user in users:
            if served == terms.horizon or len(batch) == terms.batch_size:
                if served == terms.horizon:
                    exposures, served = [0] * len(terms.floors), 0
                watched = policy.watches(state)
                state = policy.step(state, terms, self.feedback(batch, exposures, served, watched))
                batch = []
            prices = policy.prices(state)
            width = min(len(catalog), terms.k + policy.lookahead(state, terms.k))
            user = user[None] if user.ndim == 2 else user[None, None]
            [rows], [relevance] = plain.search(catalog, user, prices, len(catalog))
            missing = [max(0, floor - seen) for floor, seen in zip(terms.floors.tolist(), exposures, strict=True)]
            left = terms.horizon - served - 1
            chosen = rows[: terms.k]
            if policy.keeps_floors:
                chosen = self.paid_for_missing(rows, relevance, prices, missing)
                if not self.possible(chosen, missing, left):
                    chosen = self.forced(rows, chosen, missing, left)
            for row in chosen:
                exposures[group[row]] += 1
            batch.append((rows[:width], relevance[:width], chosen))
            served += 1
            score = dict(zip(rows, relevance, strict=True))
            answers.append(sorted(chosen, key=lambda row: (-score[row], row)))
        return answers

    def paid_for_missing(
        self, rows: list[int], relevance: list[float], prices: npt.NDArray[np.float64], missing: list[int]
    ) -> list[int]:
        seen, scored = [0] * len(missing), []
        for row, score in zip(rows, relevance, strict=True):
            g = int(self.catalog.group_of[row])
            subsidised = prices[g] >= 0 or seen[g] < missing[g]
            scored.append((-(score - (prices[g] if subsidised else 0.0)), row))
            seen[g] += 1
        return [row for _, row in sorted(scored)[: self.terms.k]]

    def possible(self, chosen: list[int], missing: list[int], left: int) -> bool:
        after = list(missing)
        for row in chosen:
            g = int(self.catalog.group_of[row])
            after[g] = max(0, after[g] - 1)
        return sum(after) <= left * self.terms.k and all(
            a <= left * c for a, c in zip(after, self.terms.capacities.tolist(), strict=True)
        )

    def forced(self, rows: list[int], chosen: list[int], missing: list[int], left: int) -> list[int]:
        taken: list[int] = []
        still = list(missing)
        owed = [m - left * c for m, c in zip(missing, self.terms.capacities.tolist(), strict=True)]
        for row in rows:
            g = int(self.catalog.group_of[row])
            if owed[g] > 0:
                taken.append(row)
                owed[g] -= 1
                still[g] -= 1
        useful = sum(missing) - left * self.terms.k - len(taken)
        for row in rows:
            g = int(self.catalog.group_of[row])
            if useful > 0 and row not in taken and still[g] > 0:
                taken.append(row)
                still[g] -= 1
                useful -= 1
        return (taken + [row for row in chosen if row not in taken])[: self.terms.k]

    def feedback(
        self, batch: list[tuple[list[int], list[float], list[int]]], exposures: list[int], served: int, watched: bool
    ) -> Feedback:
        returned = [int(self.catalog.group_of[row]) for _, _, chosen in batch for row in chosen]
        sample = Sample(
            np.array([[self.catalog.group_of[row] for row in rows] for rows, _, _ in batch], dtype=np.intp),
            np.array([[r - scores[self.terms.k - 1] for r in scores] for _, scores, _ in batch], dtype=np.float32),
        )
        return Feedback(
            len(batch),
            np.bincount(returned, minlength=len(exposures)),
            np.array(exposures),
            self.terms.horizon - served,
            sample if watched and sample.groups.shape[1] > self.terms.k else None,
        )
