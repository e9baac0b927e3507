"""Embeddings and promises in, candidates and a report out. Run: python examples/quickstart.py."""

import numpy as np
from rich import print as show

import fairsync as fs

rng = np.random.default_rng(0)

# 5,000 items of three providers; the new one is small, and its items are liked a little less.
groups = np.repeat(["large", "middle", "new"], [4000, 900, 100])
offset = np.repeat([0.0, 0.0, -0.15], [4000, 900, 100])[:, None]
embeddings = (rng.normal(size=(5000, 32)) + offset).astype(np.float32)
catalog = fs.Catalog(embeddings, groups)

# The new provider was promised 1,000 exposures in the next 2,000 requests.
retriever = fs.FairRetriever(catalog, k=20, floors={"new": 1000}, horizon=2000)

# Optional: learn prices from past requests, so that the first one is already well priced.
past, users = rng.normal(0.3, 1, size=(500, 32)), rng.normal(0.3, 1, size=(2000, 32))
retriever.calibrate(past)

for user in users:  # one request at a time, or many per call: the answers are the same
    found = retriever.retrieve(user[None])
print("the last request got", found.ids[0, :5], "...")

# What did the promise cost, and what was the least it could have cost?
best = fs.hindsight(catalog, users, k=20, floors={"new": 1000})
show(retriever.report(best))
