import sys
from pathlib import Path

import numpy as np
import pytest

from fairsync.data.splits import split_by_users
from fairsync.models import NetworkSettings, make_settings, recall_of, train_svd
from tastes import tasteful

sys.path.append(str(Path(__file__).parents[2]))  # the benchmarks are no part of the package

from benchmarks import models, rechub


def figure(errors: float, times_faster: float, epochs: float = 5.0) -> models.Measurement:
    return models.Measurement("mind", 512, epochs, 0.1, 0.1, errors, 2e4, 1e4, times_faster)


def test_recall_is_that_of_the_program() -> None:
    dataset = tasteful(200)
    split = split_by_users(dataset)
    model = train_svd(split.train, dataset.item_ids, None)
    users = model.user_vectors(split.test.histories)[:, None, :]
    found = models.recall_of_each(users, model.item_vectors(), split.test).mean()
    assert found == pytest.approx(recall_of(model, split.test))


def test_claims() -> None:
    claims = models.check_claims([figure(-1.9, 2.0), figure(-2.1, 1.9), figure(-9.0, 3.0, epochs=0.5)])
    assert [claim.met for claim in claims] == [True, False, True, True, False]


@pytest.mark.parametrize("name", models.NETWORKS)
def test_the_peer_learns_from_what_it_is_given(name: str) -> None:
    pytest.importorskip("torch_rechub")
    settings = make_settings(name, dim=8, history=4, batch=16)
    assert isinstance(settings, NetworkSettings)
    peer = rechub.Peer(name, settings, n_items=30)
    rng = np.random.default_rng(0)
    histories = rng.integers(30, size=(33, 4))
    histories[:, 3] = -1
    before = peer.vectors(histories)
    peer.train(peer.loader(histories, rng.integers(30, size=33), rng))
    users, items = peer.vectors(histories)
    assert users.shape == (33, settings.interests, 8)
    assert items.shape == (30, 8)
    assert np.isfinite(users).all()
    assert not np.allclose(items, before[1])


def test_the_peer_pads_before() -> None:
    pytest.importorskip("torch_rechub")
    settings = make_settings("youtube-dnn", dim=8, history=4)
    assert isinstance(settings, NetworkSettings)
    peer = rechub.Peer("youtube-dnn", settings, n_items=30)
    assert peer.user_features(np.array([[5, 6, -1], [7, -1, -1]]))["past"].tolist() == [[0, 0, 6, 7], [0, 0, 0, 8]]
