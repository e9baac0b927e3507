"""Atomic writes: a file or folder appears complete or not at all, even if the process is killed on the way."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fairsync.errors import FairSyncError, InvalidInputError, UnwritablePathError


def check_path(path: object) -> Path:
    """Return a path, or say that something else was given in its place.

    Examples
    --------
    >>> check_path(None)
    Traceback (most recent call last):
    fairsync.errors.InvalidInputError: this needs the path of a file or folder, got None.
    """
    if not isinstance(path, str | os.PathLike):
        raise InvalidInputError(f"this needs the path of a file or folder, got {path!r:.80}.")
    return Path(path)


@contextmanager
def explain_write_errors(path: Path) -> Iterator[None]:
    """Raise `UnwritablePathError` for an error of the operating system in this block, which writes this path.

    Examples
    --------
    >>> with explain_write_errors(Path("plot.png")):
    ...     raise PermissionError(13, "Permission denied")
    Traceback (most recent call last):
    fairsync.errors.UnwritablePathError: plot.png cannot be written: Permission denied.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, FairSyncError):
            raise
        raise UnwritablePathError(f"{path} cannot be written: {error.strerror or error}.") from error


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty temporary folder that replaces ``folder`` when the block ends without an error.

    Parameters
    ----------
    folder
        The folder to create or to replace. Its parent is created if it does not exist.

    Examples
    --------
    >>> target = Path(tempfile.mkdtemp()) / "model"
    >>> with atomic_folder(target) as work:
    ...     _ = (work / "weights.txt").write_text("1 2 3")
    >>> [path.name for path in target.iterdir()]
    ['weights.txt']
    """
    folder = folder.resolve()
    with explain_write_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            yield work
            work.chmod(0o777 & ~_umask())  # mkdtemp gives access to the owner only
            # The old folder is moved aside and removed last: renaming is instantaneous, removing files is not.
            old = work.with_name(f"{work.name}-old")
            if folder.exists():
                folder.rename(old)
            work.rename(folder)
            shutil.rmtree(old, ignore_errors=True)
        finally:
            shutil.rmtree(work, ignore_errors=True)


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield the path of a temporary file that replaces ``path`` when the block ends without an error.

    The file is on disk before it gets its name, so that a power cut leaves the old content or the new one. Processes
    that write the same path at the same time do not disturb each other: the last one wins.

    Parameters
    ----------
    path
        The file to create or to replace. Its folder is created if it does not exist.

    Examples
    --------
    >>> target = Path(tempfile.mkdtemp()) / "cell.json"
    >>> with atomic_file(target) as part:
    ...     _ = part.write_text("5")
    >>> target.read_text(), len(list(target.parent.iterdir()))
    ('5', 1)
    """
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    with explain_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield part
            with part.open("rb") as file:
                os.fsync(file.fileno())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask
