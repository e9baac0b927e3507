"""A search of your own, here Qdrant, under promises, with leases. Run: pip install 'fairsync[service,qdrant]'."""

import socket
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from qdrant_client import QdrantClient, models

import fairsync as fs
from fairsync.service.schema import SettledList

# A shop of 1,000 items. Small sellers have a quarter of them, which hardly anybody finds.
rng = np.random.default_rng(0)
n, dim, k, requests, floor = 1_000, 16, 10, 240, 350
seller = np.where(rng.random(n) < 0.25, "small", np.where(rng.random(n) < 0.5, "north", "south"))
vectors = rng.normal(size=(n, dim)).astype(np.float32)
vectors[seller == "small"] -= 0.25
names = [f"item {number}" for number in range(n)]
users = (rng.normal(size=(requests, dim)) + 0.5).astype(np.float32)

# The items are in Qdrant, and stay there. For a server: QdrantClient("http://localhost:6333").
qdrant = QdrantClient(":memory:")
qdrant.create_collection("items", models.VectorParams(size=dim, distance=models.Distance.DOT))
payload = [{"name": name, "seller": str(one)} for name, one in zip(names, seller, strict=True)]
points = [models.PointStruct(id=at, vector=vectors[at].tolist(), payload=payload[at]) for at in range(n)]
qdrant.upsert("items", points)

# FairSync needs ids and attributes to count exposures. It is not asked to search, so that its vectors are empty ones.
folder = Path(tempfile.mkdtemp())
fs.save_catalog(fs.Catalog(np.zeros((n, 1), dtype=np.float32), {"seller": seller}, names), folder / "items")
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
begin, end = datetime.now(UTC), datetime.now(UTC) + timedelta(hours=1)
settings = folder / "service.toml"
settings.write_text(f"""
[catalog]
path = "items"
[promise]
k = {k}
batch_size = 16
[[promises]]
group = "small"
floor = {floor}
window = {{ every = "campaign", start = {begin.isoformat()}, end = {end.isoformat()} }}
[traffic]
per_second = {requests / 3 / 3600}
[ledger]
url = "memory://"
[http]
port = {port}
log = "problems"
""")


def search(vector: list[float], formula: dict[str, Any]) -> list[models.ScoredPoint]:
    """Let Qdrant rank the best 200 items by score minus price."""
    fetch = models.Prefetch(query=vector, filter=models.Filter(**formula["filter"]), limit=200)
    query = models.FormulaQuery(**formula["query"])
    return qdrant.query_points("items", prefetch=[fetch], query=query, limit=200, with_vectors=True).points


shown = {"promised": 0, "without prices": 0}
service = subprocess.Popen([Path(sys.executable).with_name("fairsync"), "serve", settings])
try:
    with fs.Client(f"http://127.0.0.1:{port}", timeout=120) as client:
        client.ready()
        answered = 0
        while answered < requests:
            # Some requests, with the prices to search under as a formula of Qdrant.
            lease = client.lease(requests - answered, format="qdrant")
            assert lease.formula is not None
            lists = []
            for user in users[answered : answered + lease.requests]:
                found = search(user.tolist(), lease.formula)
                ids = [(point.payload or {})["name"] for point in found]
                # The scores without prices, of a few more items than are returned: prices are learnt from them.
                scores = np.array([point.vector for point in found]) @ user
                known = max(lease.wanted_scores, k)
                lists.append(SettledList(items=ids[:k], fetched=ids[:known], scores=scores[:known].tolist()))
                shown["promised"] += sum((point.payload or {})["seller"] == "small" for point in found[:k])
                plain = qdrant.query_points("items", user.tolist(), limit=k).points
                shown["without prices"] += sum((point.payload or {})["seller"] == "small" for point in plain)
            client.settle(lease.lease, lists)
            answered += lease.requests
        (promise,) = client.promises()
finally:
    service.terminate()
    service.wait()
    qdrant.close()

print(f"small sellers: {shown['without prices']} exposures without prices, {promise.exposures} of {floor} promised")
assert promise.exposures == shown["promised"]
if promise.exposures >= floor:
    print("kept")
