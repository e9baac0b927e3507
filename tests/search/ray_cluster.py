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
_WORKER_PORTS = range(10002, 20000)  # Ray gives these to workers


# A node that is gone is noticed after four checks, 0.4 s apart; by default Ray takes longer.
_NOTICE_SOON = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 400, "health_check_failure_threshold": 4}


class RayCluster:
    """A head without processors, so that nothing but the driver depends on it, and nodes that can be lost.

    Start one per module: it takes seconds. Only one lives at a time on a machine, and others wait for their turn.
    """

    def __init__(self, nodes: int = 3, cpus: int = 2) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings of Ray itself
            self._only_one = _wait_for_turn()
            head = {"num_cpus": 0, "gcs_server_port": free_port(), "_system_config": _NOTICE_SOON}
            self._cluster = Cluster(initialize_head=True, head_node_args=head | _NODE)
            self.nodes = [self.add_node(cpus) for _ in range(nodes)]
            ray.init(address=self.address, log_to_driver=False, configure_logging=False)

    @property
    def address(self) -> str:
        """For other processes to connect to, which need the token of this one's environment too."""
        return str(self._cluster.address)

    def add_node(self, cpus: int = 2) -> Any:
        """Start one more node."""
        return self._cluster.add_node(num_cpus=cpus, **_NODE)

    def kill_node(self, node: Any) -> None:
        """End a node and all its workers with SIGKILL."""
        self._cluster.remove_node(node, allow_graceful=False)
        if node in self.nodes:
            self.nodes.remove(node)

    def stop(self) -> None:
        """End everything."""
        ray.shutdown()
        self._cluster.shutdown()  # type: ignore[no-untyped-call]
        self._only_one.close()

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


def wait_for(what: Any, seconds: float = 120.0, pause: float = 0.05) -> None:
    """Wait until a question is answered with yes."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(pause)
