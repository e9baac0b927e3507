"""Every notebook runs from top to bottom, and is saved without outputs."""

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest

NOTEBOOKS = sorted((Path(__file__).parent.parent / "docs" / "notebooks").glob("*.ipynb"))


def cells(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return found


def test_there_are_notebooks() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["what-a-promise-costs", "your-embeddings"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_saved_without_outputs(path: Path) -> None:
    for cell in cells(path):
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None), "clear all outputs before saving"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_and_keeps_its_promise(path: Path) -> None:
    scope: dict[str, Any] = {"__name__": "__main__"}
    with mpl.rc_context():
        for number, cell in enumerate(cells(path)):
            if cell["cell_type"] == "code":
                exec(compile("".join(cell["source"]), f"{path.name}, cell {number}", "exec"), scope)
    assert scope["report"].esp == 1.0
