"""A real Ray cluster of several nodes on this machine, to be started, robbed of nodes and stopped."""

import fcntl
import os
import secrets
import socket
import tempfile
import time
import warnings
from pathlib import Path
from types import TracebackType
from typing import IO, Any

# Ray 2.59 and later authenticate by a token: every process of the cluster takes it from here, none from a file.
os.environ["RAY_AUTH_MODE"] = "token"
os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"  # says that what Ray does by default may change one day

import ray
from ray._private.authentication_test_utils import reset_auth_token_state
from ray.cluster_utils import Cluster

reset_auth_token_state()  # Ray looks when it is imported, which may have been before

_STORE_BYTES = 80 << 20
_STARTS_WITHIN = 300.0
_WORKER_PORTS = range(10002, 20000)  # Ray gives these to workers


# A node that is gone is noticed after eight checks, 0.4 s apart; by default Ray takes longer. One that is only slow has
# a minute to answer each of them.
_NOTICE_SOON = {"health_check_timeout_ms": 60_000, "health_check_period_ms": 400, "health_check_failure_threshold": 8}
_SLOW_STARTS = {"worker_register_timeout_seconds": 600}
_ATTEMPTS = 4  # Ray gives up a start after 30 s, which a busy machine may need


class RayCluster:
    """A head without processors, so that nothing but the driver depends on it, and nodes that can be lost.

    Start one per module: it takes seconds. Only one lives at a time on a machine, and others wait for their turn.
    """

    def __init__(self, nodes: int = 3, cpus: int = 2) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings of Ray itself
            self._only_one = _wait_for_turn()
            for attempt in range(_ATTEMPTS):
                self._cluster = Cluster()
                try:
                    self._start(nodes, cpus)
                    break
                except Exception:
                    self._end()
                    if attempt == _ATTEMPTS - 1:
                        raise

    def _start(self, nodes: int, cpus: int) -> None:
        # Another process may take a free port before Ray does: each attempt chooses another one.
        head = {"num_cpus": 0, "gcs_server_port": free_port(), "_system_config": _NOTICE_SOON | _SLOW_STARTS}
        self._cluster.add_node(wait=False, **head, **_NODE)
        self._cluster.wait_for_nodes(_STARTS_WITHIN)
        self.nodes = [self.add_node(cpus) for _ in range(nodes)]
        ray.init(address=self.address, log_to_driver=False, configure_logging=False)

    @property
    def address(self) -> str:
        """For other processes to connect to, which need the token of this one's environment too."""
        return str(self._cluster.address)

    def add_node(self, cpus: int = 2) -> Any:
        """Start one more node."""
        node = self._cluster.add_node(wait=False, num_cpus=cpus, **_NODE)
        self._cluster.wait_for_nodes(_STARTS_WITHIN)
        return node

    def kill_node(self, node: Any) -> None:
        """End a node and all its workers with SIGKILL."""
        self._cluster.remove_node(node, allow_graceful=False)
        if node in self.nodes:
            self.nodes.remove(node)

    def stop(self) -> None:
        """End everything."""
        self._end()
        self._only_one.close()

    def _end(self) -> None:
        ray.shutdown()
        self._cluster.shutdown()  # type: ignore[no-untyped-call]

    def __enter__(self) -> "RayCluster":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


_NODE: dict[str, Any] = {"object_store_memory": _STORE_BYTES, "include_dashboard": False}


def _wait_for_turn() -> IO[str]:
    """Return a file whose lock says that a cluster is there, until it is closed."""
    mine = (Path(tempfile.gettempdir()) / f"fairsync-ray-cluster-{os.getuid()}").open("w")
    fcntl.flock(mine, fcntl.LOCK_EX)
    return mine


def free_port() -> int:
    """Return a free port, outside those that Ray gives to workers."""
    while True:
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            port = int(one.getsockname()[1])
        if port not in _WORKER_PORTS:
            return port


def wait_for(what: Any, seconds: float = 300.0, pause: float = 0.05) -> None:
    """Wait until a question is answered with yes."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(pause)
