import io
import json
import sys
from pathlib import Path

import pytest
from rich.console import Console

sys.path.append(str(Path(__file__).parents[2]))  # the benchmarks are no part of the package

from benchmarks import front_end_memory
from postgres_server import PostgresServer


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read as Linux has it")
def test_it_runs_from_end_to_end(tmp_path: Path, postgres: PostgresServer) -> None:
    size = ["--items", "3000", "--requests", "24", "--url", postgres.url]
    front_end_memory.main([*size, "--out", str(tmp_path)], Console(file=io.StringIO(), width=160))
    figures = json.loads((tmp_path / "front_end_memory_pgvector.json").read_text())
    assert figures["hosted"]["kept"] == 1.0
    assert figures["hosted"]["most"] > figures["hosted"]["before"] > 10
    postgres.execute(f"DROP TABLE {front_end_memory.NAMES['pgvector']['table']}")
