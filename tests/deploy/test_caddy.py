"""deploy/Caddyfile in front of a service: TLS, and limits."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from service.running import make_settings, running, small_service
from service.service_process import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(shutil.which("caddy") is None, reason="caddy is not installed")
CONFIG = Path(__file__).parents[2] / "deploy" / "Caddyfile"


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client that trusts the certificate that Caddy makes for localhost."""
    folder, port = tmp_path_factory.mktemp("caddy"), free_port()
    local = folder / "Caddyfile"
    options = f"{{\n\tadmin off\n\tskip_install_trust\n\tauto_https disable_redirects\n\thttps_port {port}\n"
    local.write_text(CONFIG.read_text().replace("\n{\n", f"\n{options}", 1))
    with running(small_service(), make_settings()) as service:
        environ = {
            **os.environ, "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "HOME": str(folder),
            "FAIRSYNC_HOST": "localhost", "FAIRSYNC_UPSTREAM": f"127.0.0.1:{service.port}",
        }  # fmt: skip
        with subprocess.Popen(["caddy", "run", "--config", str(local)], env=environ) as process:
            try:
                root = folder / "caddy" / "pki" / "authorities" / "local" / "root.crt"
                with closing(_client(process, root, port)) as client:
                    yield client
            finally:
                process.terminate()


def _client(process: subprocess.Popen[bytes], root: Path, port: int) -> httpx.Client:
    end = time.monotonic() + 240
    while True:
        assert process.poll() is None, "caddy has ended"
        assert time.monotonic() < end
        try:
            client = httpx.Client(base_url=f"https://localhost:{port}", verify=_trusting(root), timeout=60)
        except OSError:  # it has not made a certificate yet
            time.sleep(0.1)
            continue
        try:
            if client.get("/ready").status_code == 200:
                return client
        except httpx.TransportError:
            pass
        client.close()
        time.sleep(0.1)


def _trusting(root: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(root))


def test_a_request_is_answered_over_tls(proxy: httpx.Client) -> None:
    answer = proxy.post("/v1/retrieve", json={"vectors": [[1.0] * 8]})
    assert answer.status_code == 200
    assert len(answer.json()["answers"][0]["ids"]) == 3
    assert "FairSync" in proxy.get("/").text


def test_a_body_that_is_too_large_ends_at_the_proxy(proxy: httpx.Client) -> None:
    answer = proxy.post("/v1/retrieve", content=b" " * 17_000_000, headers={"content-type": "application/json"})
    assert answer.status_code in (413, 502)
