"""A file or folder is replaced completely or not at all."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from fairsync.atomic_write import atomic_file, atomic_folder


def write(target: Path, text: str) -> None:
    (target / "a.txt" if target.is_dir() else target).write_text(text)


def read(target: Path) -> str:
    return (target / "a.txt" if target.is_dir() else target).read_text()


@pytest.mark.parametrize("atomic", [atomic_file, atomic_folder])
def test_the_new_content_replaces_the_old_one(
    tmp_path: Path, atomic: Callable[[Path], AbstractContextManager[Path]]
) -> None:
    target = tmp_path / "below" / "target"
    for text in ("old", "new"):
        with atomic(target) as part:
            write(part, text)
            assert not target.exists() or read(target) == "old"
        assert read(target) == text
    assert [path.name for path in target.parent.iterdir()] == ["target"]


@pytest.mark.parametrize("atomic", [atomic_file, atomic_folder])
def test_an_error_leaves_the_old_content_and_nothing_else(
    tmp_path: Path, atomic: Callable[[Path], AbstractContextManager[Path]]
) -> None:
    target = tmp_path / "target"
    with atomic(target) as part:
        write(part, "old")

    def interrupted() -> None:
        with atomic(target) as part:
            write(part, "new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert read(target) == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


def test_a_folder_has_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "usual").mkdir()
    with atomic_folder(tmp_path / "made"):
        pass
    assert os.stat(tmp_path / "made").st_mode == os.stat(tmp_path / "usual").st_mode
