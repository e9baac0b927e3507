"""Labels of the first attribute, beside selections that the ledger counts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pytest

from fairsync.catalog import Catalog
from fairsync.catalog.files import save_catalog
from fairsync.errors import InvalidInputError
from fairsync.promises import Promise
from fairsync.schedule import ScheduledPromise, Window
from fairsync.service.check import check
from fairsync.service.promises.attribute_views import attribute_views
from fairsync.service.promises.conversion import promise_from_record
from fairsync.service.run import make_promise_service
from fairsync.service.schema import PromiseRecord, WindowRecord
from fairsync.service.settings import load_settings

if TYPE_CHECKING:
    from pathlib import Path

    from fairsync.catalog.groups import Label

DAY = WindowRecord(every="day")


@pytest.mark.parametrize("labels", [["books", "toys", "wine"], [30, 10, 20]], ids=["words", "numbers"])
@pytest.mark.usefixtures("midday")
def test_selections_never_become_labels(tmp_path: Path, labels: list[Label]) -> None:
    attributes = {"category": np.repeat(labels, 20), "region": ["DE", "AT", "CH"] * 20, "in_stock": [True] * 60}
    vectors = np.random.default_rng(7).normal(size=(60, 8)).astype(np.float32)
    save_catalog(Catalog(vectors, attributes, [f"i{row}" for row in range(60)]), tmp_path / "items")
    path = tmp_path / "service.toml"
    path.write_text(
        '[catalog]\npath = "items"\n[promise]\nk = 3\n[traffic]\nper_second = 1\n'
        '[ledger]\nurl = "sqlite:///exposures.db"\n'
    )
    for start in range(2):
        service = make_promise_service(load_settings(path, {}))
        try:
            if not start:
                promise = ScheduledPromise(Promise({"region": "AT"}, at_least=10), Window.day("UTC"))
                service.editor.set_promise(promise)
            service.items.upsert(None, {"in_stock": [False]}, ["i7"])
            service.items.upsert(None, {"category": [labels[0]]}, ["i8"])
            assert np.isin(service.retrieve(vectors[:8]).groups, labels).all()
            first = attribute_views(service.catalog)[0]
            assert (first.name, sorted(first.labels), first.total) == ("category", sorted(labels), 3)
            column = '{"region": "AT"}'
            assert column in service.coordinator.labels
            with pytest.raises(InvalidInputError, match="has no group") as refused:
                promise_from_record(PromiseRecord(group=column, floor=5, window=DAY), service.catalog)
            assert "3 groups" in str(refused.value)
            assert "region" not in str(refused.value).split(". ", 1)[1]
            if isinstance(labels[0], str):
                record = PromiseRecord(where={"category": column}, at_least=5, window=DAY)
                with pytest.raises(InvalidInputError, match="no item meets category="):
                    promise_from_record(record, service.catalog)
        finally:
            service.close()
            service.coordinator.ledger.close()
    found = check(load_settings(path, {}), {})
    assert re.search(r"60 items, 3 groups", found.facts["catalog"])
    assert re.search(r"so far, 3 groups and 1 selection; the promises in it apply", found.facts["ledger"])
