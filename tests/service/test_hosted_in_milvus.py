"""``fairsync serve`` without a copy of the catalog, on a real Milvus server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import fairsync as fs
from service.running import shop_catalog
from service.service_process import ServiceProcess, wait_until
from service.test_hosted import PROMISES, check_deletion, write_settings

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.milvus_server import MilvusServer


@pytest.mark.usefixtures("midday")
@pytest.mark.parametrize("has_copy", [True, False])
def test_an_item_that_is_deleted_between_search_and_settle(
    has_copy: bool, tmp_path: Path, milvus_server: MilvusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = write_settings(tmp_path, "milvus", milvus_server.uri, f"deleted_{has_copy}")
    check_deletion(settings, has_copy, tmp_path, monkeypatch)


def test_promises_are_kept_and_items_changed(tmp_path: Path, milvus_server: MilvusServer) -> None:
    whole, rng = shop_catalog(), np.random.default_rng(0)
    group_of = dict(zip(whole.ids.tolist(), whole.attributes["category"].values(), strict=True))
    price_of = dict(zip(whole.ids.tolist(), whole.attributes["price"].values(), strict=True))
    with ServiceProcess(tmp_path) as service:
        write_settings(tmp_path, "milvus", milvus_server.uri, "hosted_service", PROMISES)
        text = service.config.read_text().replace("port = 0", f"port = {service.port}")
        service.config.write_text(text.replace("per_second = 1\n", "per_second = 1\nworst_case = 1e-9\n"))
        service.start()
        with fs.Client(service.url, attempts=20, timeout=60) as client:

            def is_kept() -> bool:
                where = [{"price": {"at_most": 50}}, *[None] * 19]
                found = client.retrieve(rng.normal(size=(20, 8)), exclude=[["i1", "i2"]] * 20, where=where)
                assert not {"i1", "i2"} & set(found.ids.ravel().tolist())
                assert all(price_of[item] <= 50 for item in found.ids[0].tolist())
                assert found.groups.ravel().tolist() == [group_of[item] for item in found.ids.ravel().tolist()]
                return client.promises()[0].exposures >= 200

            wait_until(is_kept)
            assert client.promises()[1].exposures <= 100
            new = {"category": ["games"], "region": ["DE"], "tags": [["new"]], "price": [4.0], "in_stock": [True]}
            assert client.upsert_items(np.full((1, 8), 9.0), new, ["novelty"]) == 61
            # A list may have to be filled for the share of CH.
            wait_until(lambda: bool(client.retrieve(np.ones((1, 8))).ids[0, 0] == "novelty"))
            assert client.remove_items(["novelty"]) == 60
            assert "novelty" not in client.retrieve(np.ones((1, 8))).ids[0]
        service.stop()
        assert "Traceback" not in service.log()
