"""How long certificates take: found from nothing, and renewed, beside a plain linear program.

    python -m benchmarks.certificates            # 6,247 promises over 100,000 atoms, one thread, a minute
    python -m benchmarks.certificates --quick    # small: a smoke test

The promises are to 1,246 categories, 5,000 providers (both with Zipf's law) and new items. Their floors are what some
plan gives that takes nearly all slots: the share of slots that is left says how nearly the last promise fits. With none
left, every exposure has to count for a category and a provider, and exactly. The plain linear program is what
`scipy.optimize.linprog` takes (interior point) for the least total. A certificate is renewed half-way: half of the
exposures of another plan have been given, and the likely ones are known.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import numpy as np
from benchmarks.output import Claim, Table, finish, make_parser, make_screen

from fairsync.catalog.atoms import Membership
from fairsync.policies.base import Counts, Terms
from fairsync.promises.certificate import find_certificate, is_certificate, renew
from fairsync.promises.exact_plan import linear_plan
from fairsync.promises.plan_bounds import PlanBounds

K, NEW = 50, 0.1
SLACKS = (0.1, 0.01, 0.001, 0.0)

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class CertificateTime:
    """One line of the table."""

    slack: float
    promises: int
    atoms: int
    plain: float
    found: float
    renewed: float
    total: float
    most: float


def make_terms(categories: int, providers: int, atoms: int, horizon: int, slack: float, seed: int) -> Terms:
    """Return promises to categories, providers and new items that leave a share of the slots."""
    rng = np.random.default_rng(seed)

    def zipf(n: int) -> Any:
        weights = 1 / np.arange(1, n + 1)
        return rng.choice(n, size=5 * atoms, p=weights / weights.sum())

    keys = (zipf(categories) * providers + zipf(providers)) * 2 + (rng.random(5 * atoms) < NEW)
    kinds, sizes = np.unique(keys, return_counts=True)
    chosen = np.sort(rng.permutation(len(kinds))[:atoms])
    kinds, sizes = kinds[chosen], sizes[chosen]
    pairs = np.column_stack([kinds // 2 // providers, categories + kinds // 2 % providers]).tolist()
    new = categories + providers
    lists = [[*pair, new] if is_new else pair for pair, is_new in zip(pairs, (kinds % 2).tolist(), strict=True)]
    membership = Membership.of(lists, new + 1)
    capacities = np.minimum(sizes, K)
    weights = rng.lognormal(0, 1.5, size=len(kinds)) * sizes
    plan = rng.multinomial(int(horizon * K * (1 - slack)), weights / weights.sum())
    floors = membership.exposures(np.minimum(plan, horizon * capacities))
    return Terms(floors, capacities, K, horizon, 16, membership=membership)


def measure(terms: Terms, slack: float, seed: int) -> CertificateTime:
    """Time the ways to a certificate."""
    bounds = PlanBounds.of(terms, terms.floors, None, terms.horizon)
    plain, _ = timed(lambda: linear_plan(bounds, time.monotonic() + 600))
    found, plan = timed(lambda: find_certificate(terms, terms.floors, None, terms.horizon))
    assert plan is not None
    assert is_certificate(terms, plan, terms.floors, None, terms.horizon)
    # Half of the horizon later: exposures were given near the plan, which has followed as the guard would have it.
    rng, left = np.random.default_rng(seed + 1), terms.horizon // 2
    given = np.minimum(rng.poisson(plan * rng.lognormal(-0.5, 0.5, size=len(plan)) / 2), left * terms.capacities)
    missing = np.maximum(terms.floors - terms.exposures(given), 0)
    now = find_certificate(terms, missing, None, left)
    if now is None:  # what was given was of no use: begin with half of the floors
        missing, left = terms.floors // 2, (terms.horizon + 1) // 2
        now = find_certificate(terms, missing, None, left)
    assert now is not None
    renewed, better = timed(lambda: renew(terms, now, missing, None, left, given.astype(np.float64)))
    assert is_certificate(terms, better, missing, None, left)
    most = float((plan / np.maximum(bounds.most, 1)).max())
    return CertificateTime(
        slack, len(terms.floors), terms.n_atoms, plain, found, renewed, float(plan.sum()) / bounds.total, most
    )


def timed(call: Callable[[], _Result]) -> tuple[float, _Result]:
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def to_table(lines: Sequence[CertificateTime]) -> Table:
    return Table.of(
        "Certificates: seconds",
        lines,
        {
            "slots left": lambda line: f"{line.slack:.1%}",
            "promises": lambda line: f"{line.promises:,}",
            "atoms": lambda line: f"{line.atoms:,}",
            "plain s": lambda line: f"{line.plain:.2f}",
            "found s": lambda line: f"{line.found:.2f}",
            "renewed s": lambda line: f"{line.renewed:.2f}",
            "plan / slots": lambda line: f"{line.total:.4f}",
            "largest X/(R c)": lambda line: f"{line.most:.3f}",
        },
    )


def main(args: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__, quick="a smoke test on a small set")
    parser.add_argument("--horizon", type=int, default=60_000, help="requests")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(args)
    categories, providers, atoms = (40, 100, 2_000) if given.quick else (1_246, 5_000, 100_000)
    lines = [
        measure(make_terms(categories, providers, atoms, given.horizon, slack, given.seed), slack, given.seed)
        for slack in SLACKS
    ]
    claims = [
        Claim("the slowest certificate from nothing, seconds", max(line.found for line in lines), 6.0),
        Claim("the slowest renewal, seconds", max(line.renewed for line in lines), 1.0),
    ]
    document: dict[str, Counts | Any] = {"lines": [asdict(line) for line in lines]}
    return finish("certificates", [to_table(lines)], claims, document, given.out, make_screen())


if __name__ == "__main__":
    raise SystemExit(main())
