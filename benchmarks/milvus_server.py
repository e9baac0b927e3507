"""The real Milvus server that PyPI's package `milvus` carries, to be started, killed and started again."""

import contextlib
import os
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

import milvus
from pymilvus import MilvusClient

_STARTS_WITHIN = 300.0
_ETCD = """\
name: default
data-dir: {folder}/etcd
listen-peer-urls: http://localhost:{peer}
initial-advertise-peer-urls: http://localhost:{peer}
initial-cluster: default=http://localhost:{peer}
listen-client-urls: http://localhost:{client}
advertise-client-urls: http://localhost:{client}
"""


class MilvusServer:
    """A standalone server whose data lie in a folder and outlive it.

    Parameters
    ----------
    folder
        The folder.
    authorization
        Whether users need a password and rights. The first user is ``root``, with the password ``Milvus``.
    """

    def __init__(self, folder: Path, *, authorization: bool = False) -> None:
        self._folder = folder
        config = milvus.MilvusServerConfig(data_dir=str(folder))
        keys = [key for key in config.configurable_items if key.endswith("_port")]
        *ports, peer, health = _free_ports(len(keys) + 2)
        config.configs.update(zip(keys, ports, strict=True))
        config.resolve()
        milvus._initialize_data_files(str(folder))
        # Without a file of its own, the etcd inside takes a fixed port, and two servers cannot run side by side.
        etcd = folder / "etcd.yaml"
        etcd.write_text(_ETCD.format(folder=folder, peer=peer, client=config.get("etcd_port")), encoding="utf-8")
        self._environment = os.environ | {
            "DEPLOY_MODE": "STANDALONE",
            "ETCD_CONFIG_PATH": str(etcd),
            "LD_LIBRARY_PATH": str(folder / "bin"),
            "METRICS_PORT": str(health),
            "MILVUS_RUN_DIR": str(folder / "run"),
            # Seconds that a killed server counts as alive, for which its successor waits; 30 by default.
            "COMMON_SESSION_TTL": "3",
            # Milliseconds between two looks at what is to be loaded; 1000 and 500 by default.
            "QUERYCOORD_CHECKINTERVAL": "50",
            "QUERYCOORD_DISTPULLINTERVAL": "50",
            # Milliseconds between two ticks, for which a read of the latest data waits; 200 by default.
            "PROXY_TIMETICKINTERVAL": "20",
            "COMMON_SECURITY_AUTHORIZATIONENABLED": str(authorization).lower(),
        }
        self._health = f"http://127.0.0.1:{health}/healthz"
        self.uri = f"http://127.0.0.1:{config.get('proxy_port')}"

    def start(self) -> None:
        """Start it and wait until it says that it is well."""
        with (self._folder / "server.log").open("ab") as log:
            command = [str(self._folder / "bin" / "milvus"), "run", "standalone"]
            self._process = subprocess.Popen(command, cwd=self._folder, env=self._environment, stdout=log, stderr=log)
        end = time.monotonic() + _STARTS_WITHIN
        while time.monotonic() < end:
            assert self._process.poll() is None, f"the server stopped: see {self._folder}/server.log"
            with contextlib.suppress(OSError), urllib.request.urlopen(self._health, timeout=1) as answer:
                if b"OK" in answer.read():
                    return
            time.sleep(0.1)
        raise TimeoutError(f"the server did not start: see {self._folder}/server.log")

    def kill(self) -> None:
        """End it at once, without a chance to tidy up (SIGKILL)."""
        self._process.kill()
        self._process.wait()

    def suspend(self) -> None:
        """Stop it without ending it: connections stay open, and nothing is answered."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue after `suspend`. Milvus ends itself, sooner or later, if its session has expired; see `revive`."""
        self._process.send_signal(signal.SIGCONT)

    def revive(self) -> None:
        """Start it again if it has ended, as a supervisor would."""
        if self._process.poll() is not None:
            self.start()

    def client(self) -> MilvusClient:
        """Return a client of its own."""
        return MilvusClient(self.uri)

    def clear(self) -> None:
        """Drop all collections."""
        client = self.client()
        for name in client.list_collections():
            for alias in client.list_aliases(name)["aliases"]:
                client.drop_alias(alias)
            client.drop_collection(name)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
