"""Vectors of another library, here ALS of `implicit`, under floors. Run: pip install implicit, then this file."""

import tempfile
from pathlib import Path

import numpy as np
import polars as pl
from implicit.als import AlternatingLeastSquares  # type: ignore[import-untyped]
from rich import print as show
from scipy.sparse import csr_array, csr_matrix
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

import fairsync as fs
from fairsync.data import read_catalog, read_targets, read_vectors
from fairsync.evaluation import evaluate

# A small shop: 900 users buy 12 of 600 items. A taste is shared by the items of a shelf; ten sellers share the
# shelves, and the later ones are found less often.
rng = np.random.default_rng(0)
n_users, n_items, bought = 900, 600, 12
shelf, seller = rng.integers(20, size=n_items), np.minimum(rng.geometric(0.3, size=n_items), 10)
popular = rng.pareto(1.2, size=n_items) / seller
baskets = []
for _ in range(n_users):
    liked = popular * np.where(np.isin(shelf, rng.choice(20, 2, replace=False)), 30, 1)
    baskets.append(rng.choice(n_items, bought, replace=False, p=liked / liked.sum()))
held_out = [basket[-2:] for basket in baskets]  # what each user should be shown

# The other library learns from the rest. What it learns is two arrays: one row for each user, one for each item.
seen = np.concatenate([basket[:-2] for basket in baskets])
log = csr_array((np.ones(len(seen)), (np.repeat(np.arange(n_users), bought - 2), seen)), (n_users, n_items))
model = AlternatingLeastSquares(factors=32, random_state=0, num_threads=1)
with threadpool_limits(1, "blas"):  # as implicit asks for
    model.fit(csr_matrix(log), show_progress=False)

# Any library can write files like these; "fairsync evaluate --items ... --users ... --groups ..." reads them too.
folder = Path(tempfile.mkdtemp())
np.save(folder / "items.npy", model.item_factors)
np.save(folder / "users.npy", model.user_factors)
names = [f"item {number}" for number in range(n_items)]
pl.DataFrame({"item": names, "group": [f"seller {number:02}" for number in seller]}).write_parquet(
    folder / "groups.parquet"
)
pl.DataFrame({"item": [[names[row] for row in rows] for rows in held_out]}).write_parquet(folder / "targets.parquet")

catalog = read_catalog(folder / "items.npy", folder / "groups.parquet")
users, targets = read_vectors(folder / "users.npy"), read_targets(folder / "targets.parquet", folder / "users.npy")

# Every seller is promised 150 exposures. What does that do to accuracy, and to how exposure is shared?
show(evaluate(catalog, users, targets, ks=[10], floors=150, policies=["none", "guaranteed"]))

# And in production: the same vectors, request by request.
retriever = fs.FairRetriever(catalog, k=10, floors=150, horizon=n_users)
for user in users:
    found = retriever.retrieve(user[None])
show(retriever.report())
