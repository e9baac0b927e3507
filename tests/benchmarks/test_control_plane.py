import io
import json
import sys
from pathlib import Path

from rich.console import Console

sys.path.append(str(Path(__file__).parents[2]))  # the benchmarks are no part of the package

from benchmarks import control_plane


def test_it_runs_from_end_to_end(tmp_path: Path) -> None:
    size = ["--items", "1500", "--groups", "8", "--requests", "128"]
    control_plane.main([*size, "--out", str(tmp_path)], Console(file=io.StringIO(), width=160))
    figures = json.loads((tmp_path / "control_plane.json").read_text())["figures"]
    assert len(figures) == 12
    assert all(one["shortfall"] < one["plain"] <= one["promised"] for one in figures)
