"""A small catalog with three attributes, and promises about it that overlap."""

import numpy as np
import numpy.typing as npt

import fairsync as fs

PROVIDERS = ["acme", "best", "corp", "dune"]


def make_catalog(seed: int = 0, n: int = 300, dim: int = 8) -> fs.Catalog:
    rng = np.random.default_rng(seed)
    category = rng.choice(["toys", "books", "wine"], n, p=[0.6, 0.3, 0.1])
    provider = rng.choice(PROVIDERS, n, p=[0.5, 0.3, 0.15, 0.05])
    embeddings = rng.normal(size=(n, dim)) + 1.5 * (category == "toys")[:, None]
    attributes = {"category": category.tolist(), "provider": provider.tolist(), "new": (rng.random(n) < 0.1).tolist()}
    return fs.Catalog(embeddings, attributes)


def make_users(n: int, seed: int = 1, dim: int = 8) -> npt.NDArray[np.float64]:
    return np.random.default_rng(seed).normal(size=(n, dim)) + 0.5


def some_promises(catalog: fs.Catalog) -> list[fs.Promise]:
    return [
        *fs.each(catalog, "provider", at_least=150),
        fs.Promise({"category": "wine"}, at_least=0.15, at_most=0.3),
        fs.Promise({"category": "toys"}, at_most=0.5),
        fs.Promise({"new": True, "category": "books"}, at_least=60),
    ]
