"""The ledger in a file: full disks, read-only, damaged, deleted and replaced files, and other processes."""

import os
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from fairsync.errors import FairSyncError, InvalidInputError
from fairsync.ledger import SqlLedger
from fairsync.ledger.reader import LedgerReader
from ledger.writing import ENTRY, WRITER, content

NOBODY = 65534


@contextmanager
def limited_files(size: int) -> Iterator[None]:
    """No file may become larger: writes fail as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


@contextmanager
def without_rights(*paths: Path) -> Iterator[None]:
    """Nobody may write to these paths, not even root."""
    modes = [path.stat().st_mode for path in paths]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    user = os.geteuid()
    try:
        os.seteuid(NOBODY if user == 0 else user)
        yield
    finally:
        os.seteuid(user)
        for path, mode in zip(paths, modes, strict=True):
            path.chmod(mode)


def fill_up(ledger: SqlLedger) -> int:
    """Record until it fails; return the number that failed."""
    for number in range(20_000):
        before = ledger.totals()
        try:
            ledger.record([ENTRY], key=f"{number}", answers={f"{number}": bytes(200)})
        except FairSyncError as error:
            assert "Nothing was changed" in str(error)  # noqa: PT017
            after = ledger.totals()
            assert (after.requests, after.exposures.tolist()) == (before.requests, before.exposures.tolist())
            assert ledger.answers([f"{number}"]) == {}
            return number
    pytest.fail("the disk never became full")


def test_a_file_that_cannot_grow_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with SqlLedger(path, 2) as ledger:
        with limited_files(path.stat().st_size + 40_000):
            with pytest.raises(FairSyncError, match="Nothing was changed"):
                ledger.save("much", bytes(10_000_000))
            failed = fill_up(ledger)
        assert ledger.record([ENTRY], key=f"{failed}"), "it was not recorded, and now there is room"
        assert ledger.totals().requests == failed + 1
    with SqlLedger(path, 2) as ledger:
        assert ledger.totals().requests == failed + 1
        assert ledger.load("much") is None


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("only root can make a small disk")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_changes_nothing(small_disk: Path) -> None:
    filler = small_disk / "filler"
    filler.write_bytes(bytes(300_000))
    with SqlLedger(small_disk / "a.db", 2) as ledger:
        failed = fill_up(ledger)
        filler.unlink()
        assert ledger.record([ENTRY], key=f"{failed}"), "there is room again, and nothing had to be restarted"
    with SqlLedger(small_disk / "a.db", 2) as ledger:
        assert ledger.totals().requests == failed + 1


def test_no_room_for_a_new_ledger(small_disk: Path) -> None:
    with pytest.raises(OSError, match="No space"):
        (small_disk / "filler").write_bytes(bytes(4_000_000))
    with pytest.raises(FairSyncError, match=r"a\.db could not be used"):
        SqlLedger(small_disk / "a.db", 2)
    assert not (small_disk / "a.db").exists()
    (small_disk / "filler").unlink()
    SqlLedger(small_disk / "a.db", 2).close()


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_file_that_may_not_be_written_to(what: str) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        path = folder / "a.db"
        with SqlLedger(path, 2) as ledger:
            ledger.record([ENTRY])
        for beside in folder.iterdir():
            beside.chmod(0o666)
        with without_rights(path if what == "file" else folder):
            words = {"file": r"a\.db is read-only: run this as a user", "folder": f"{folder} must be writable, too"}
            with pytest.raises(FairSyncError, match=words[what]):
                SqlLedger(path, 2)
            with LedgerReader(path) as reader:
                if what == "file":
                    assert reader.summary().requests == 1, "it can still be read"
                else:
                    with pytest.raises(FairSyncError, match=words[what]):
                        reader.summary()
        with SqlLedger(path, 2) as ledger:
            assert ledger.totals().requests == 1


def test_files_that_are_no_ledger_are_refused_and_left_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("no database at all, but quite a bit of text" * 100)
    with closing(sqlite3.connect(tmp_path / "other.db")) as other:
        other.execute("CREATE TABLE mine (x)")
    (tmp_path / "zero.db").touch()
    refused = {"text.db": "damaged or no ledger", "other.db": "no ledger: give another path", "zero.db": "no content"}
    for name, words in refused.items():
        held = (tmp_path / name).read_bytes()
        with pytest.raises(InvalidInputError, match=words):
            SqlLedger(tmp_path / name, 2)
        with pytest.raises(InvalidInputError, match=words), LedgerReader(tmp_path / name) as reader:
            reader.summary()
        assert (tmp_path / name).read_bytes() == held
    with pytest.raises(InvalidInputError, match="make it first"):
        SqlLedger(tmp_path / "nowhere" / "a.db", 2)
    with pytest.raises(FairSyncError, match="could not be used"):
        SqlLedger(tmp_path, 2)


@pytest.mark.parametrize("seed", range(6))
def test_a_damaged_file_is_refused_or_reported(tmp_path: Path, seed: int) -> None:
    """Bytes were overwritten anywhere: FairSync's own errors, no others, and the check finds it if pages are hit."""
    path, rng = tmp_path / "a.db", np.random.default_rng(seed)
    with SqlLedger(path, 2) as ledger:
        for number in range(300):
            ledger.record([ENTRY], key=f"{number}", answers={f"{number}": bytes(100)})
    data = bytearray(path.read_bytes())
    page = 4096 * int(rng.integers(0, len(data) // 4096))
    data[page : page + 4096] = rng.bytes(4096)
    path.write_bytes(data)
    found = []
    with LedgerReader(path) as reader:
        try:
            found = reader.check()
        except InvalidInputError as error:
            found = [str(error)]
    assert found
    assert re.search(r"a\.db .*(damaged|no ledger)", found[0])
    with suppress(FairSyncError), SqlLedger(path, 2) as ledger:
        ledger.totals()
        ledger.answers([f"{number}" for number in range(300)])
        ledger.record([ENTRY], key="new")


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with SqlLedger(path, 2) as ledger:
        second = subprocess.run(
            [sys.executable, "-c", WRITER, str(path), "1"], capture_output=True, text=True, check=False
        )
        assert second.stderr.strip().endswith(
            f"{path} is in use by another process: stop it first, or share a ledger in Postgres."
        )
        assert ledger.record([ENTRY])
    with SqlLedger(path, 2), pytest.raises(FairSyncError, match="is open in this process"):
        SqlLedger(tmp_path / "." / "a.db", 2)


def test_a_file_that_is_deleted_or_replaced_while_in_use(tmp_path: Path) -> None:
    path, copy = tmp_path / "a.db", tmp_path / "copy.db"
    for how in ("deleted", "replaced"):
        with SqlLedger(path, 2) as ledger:
            ledger.record([ENTRY])
        shutil.copy(path, copy)
        with SqlLedger(path, 2) as ledger:
            ledger.record([ENTRY])
            if how == "deleted":
                for beside in tmp_path.glob("a.db*"):
                    beside.unlink()
            else:
                os.replace(copy, path)
            for use in (ledger.totals, lambda one=ledger: one.record([ENTRY]), lambda one=ledger: one.save("a", b"")):
                with pytest.raises(FairSyncError, match=f"{path} was deleted or replaced while it was in use: stop"):
                    use()
        assert path.exists() == (how == "replaced")
        for beside in tmp_path.glob("*a.db*"):
            beside.unlink()


def test_a_crash_while_a_ledger_is_made_leaves_no_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    (tmp_path / "a.db.new").write_bytes(b"half a file")
    with SqlLedger(path, 2) as ledger:
        ledger.record([ENTRY])
        assert len(content(ledger)["horizons"]) == 1
    assert not (tmp_path / "a.db.new").exists()


def test_paths_with_special_characters(tmp_path: Path) -> None:
    for name in ("a b.db", "100%.db", "what?.db", "#1.db", "ünï.db"):
        with SqlLedger(tmp_path / name, 2) as ledger:
            ledger.record([ENTRY])
        assert (tmp_path / name).is_file()
        with LedgerReader(tmp_path / name) as reader:
            assert reader.summary().requests == 1
