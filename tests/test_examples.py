"""Every example runs."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))
NEEDS = {"bring_your_own": "implicit", "qdrant_control_plane": "qdrant_client"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_runs_and_keeps_its_promise(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if path.stem in NEEDS:
        pytest.importorskip(NEEDS[path.stem])
    scope = runpy.run_path(str(path), run_name="__main__")
    if "retriever" in scope:
        assert scope["retriever"].report().esp == 1.0
    else:  # a service has kept the promise, and counted what was shown
        assert scope["promise"].exposures == scope["shown"]["promised"] >= scope["floor"]
    assert "kept" in capsys.readouterr().out
