"""Time and memory of preparing a generated log in the format of Taobao's UserBehavior.csv.

    python -m benchmarks.prepare                     # 20 million rows: a minute, and 1 GB in a temporary folder
    python -m benchmarks.prepare --rows 100000000    # as many as the published log: 4 minutes and 5 GB
    python -m benchmarks.prepare --quick             # small: a smoke test

The published log has 100 million rows of 1 million users and 4 million items. Users and items here are in proportion,
and popularity is skewed, so that many items are too rare to be kept. Rows are in random order, which is the hardest to
sort. `fairsync prepare taobao` runs in a process of its own, whose peak memory is reported by the system.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import polars as pl
from benchmarks.output import Claim, Table, finish, make_parser, make_screen, shown
from rich.console import Console

CLAIMED_GIGABYTES = {20_000_000: 4.0, 100_000_000: 8.0}  # {maximum number of rows: limit}
CATEGORIES = 9_400
ROWS_PER_USER, ROWS_PER_ITEM = 100, 24
BLOCK = 1_000_000
BEHAVIOURS = {"pv": 0.896, "cart": 0.055, "fav": 0.029, "buy": 0.020}  # their shares in the published log
FIRST_SECOND, SECONDS = 1_511_539_200, 9 * 86_400


@dataclass(frozen=True)
class Measurement:
    """One run."""

    rows: int
    file_gigabytes: float
    seconds: float
    peak_gigabytes: float
    users: int
    items: int
    groups: int
    interactions: int


def generate(rows: int, seed: int) -> Iterator[pl.DataFrame]:
    """Generate a log in parts."""
    rng = np.random.default_rng(seed)
    n_users, n_items = max(rows // ROWS_PER_USER, 20), max(rows // ROWS_PER_ITEM, 20)
    # The id of an item is independent of its popularity; its category is correlated with it.
    item_ids = rng.permutation(n_items) + 1
    item_categories = (CATEGORIES * rng.random(n_items) ** 2).astype(np.int32) + 1
    names = pl.Series(list(BEHAVIOURS))
    limits = np.cumsum(list(BEHAVIOURS.values()))[:-1]
    for start in range(0, rows, BLOCK):
        n = min(BLOCK, rows - start)
        items = (n_items * rng.random(n) ** 8).astype(np.int32)
        yield pl.DataFrame(
            {
                "user": (n_users * rng.random(n) ** 1.5).astype(np.int32) + 1,
                "item": item_ids[items],
                "category": item_categories[items],
                "behaviour": names.gather(np.searchsorted(limits, rng.random(n))),
                "time": FIRST_SECOND + rng.integers(SECONDS, size=n),
            }
        )


def write(path: Path, rows: int, seed: int) -> None:
    with path.open("wb") as file:
        for block in generate(rows, seed):
            block.write_csv(file, include_header=False)


def measure(rows: int, seed: int, folder: Path) -> Measurement:
    """Prepare a generated log in a process of its own."""
    log = folder / "UserBehavior.csv"
    write(log, rows, seed)
    program = "import sys; from fairsync.cli import app; app(sys.argv[1:])"
    arguments = ["prepare", "taobao", "--log", str(log), "--out", str(folder / "prepared"), "--json"]
    started = time.perf_counter()
    with (folder / "facts.json").open("wb") as answer:
        process = subprocess.Popen([sys.executable, "-c", program, *arguments], stdout=answer)
        _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit("fairsync prepare failed.")
    facts = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
    peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    sizes = {name: facts[name] for name in ("users", "items", "groups", "interactions")}
    return Measurement(rows, log.stat().st_size / 1e9, seconds, peak / 1e9, **sizes)


def check_claims(figures: Sequence[Measurement]) -> list[Claim]:
    claims, before = [], 0
    for rows, limit in CLAIMED_GIGABYTES.items():
        peaks = [one.peak_gigabytes for one in figures if before < one.rows <= rows]
        before = rows
        if peaks:
            claims.append(Claim(f"peak memory in GB, up to {rows:,} rows", max(peaks), limit))
    return claims


def table(figures: Sequence[Measurement]) -> Table:
    return Table.of(
        "fairsync prepare taobao",
        figures,
        {
            "rows": lambda one: f"{one.rows:,}",
            "file": lambda one: f"{one.file_gigabytes:.2f} GB",
            "time": lambda one: f"{one.seconds:.0f} s",
            "rows/s": lambda one: f"{one.rows / one.seconds:,.0f}",
            "peak memory": lambda one: f"{one.peak_gigabytes:.2f} GB",
            "users": lambda one: f"{one.users:,}",
            "items": lambda one: f"{one.items:,}",
            "groups": lambda one: f"{one.groups:,}",
            "interactions": lambda one: f"{one.interactions:,}",
        },
    )


def main(argv: Sequence[str] | None = None, screen: Console | None = None) -> int:
    parser = make_parser(__doc__, quick="200,000 rows")
    parser.add_argument("--rows", type=int, nargs="+", default=[20_000_000], help="100000000: as the published log")
    parser.add_argument("--seed", type=int, default=0)
    given, screen = parser.parse_args(argv), screen or make_screen()
    figures = []
    for rows in shown(screen, [200_000] if given.quick else given.rows, lambda rows: f"{rows:,} rows"):
        with tempfile.TemporaryDirectory() as folder:
            figures.append(measure(rows, given.seed, Path(folder)))
    document = {"figures": [asdict(figure) for figure in figures]}
    return finish("prepare", [table(figures)], check_claims(figures), document, given.out, screen)


if __name__ == "__main__":
    raise SystemExit(main())
