import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # the benchmarks are no part of the package

from benchmarks import service


def test_the_time_of_a_request_is_measured(tmp_path: Path) -> None:
    assert service.main(["--quick", "--only", "latency", "--out", str(tmp_path)]) == 0
    document = json.loads((tmp_path / "service.json").read_text())
    assert {one["ledger"] for one in document["latency"]} == {"memory", "sqlite"}
    assert all(one["library"] > 0 for one in document["latency"])


def test_throughput_and_long_load_are_measured(tmp_path: Path) -> None:
    assert service.main(["--quick", "--only", "throughput", "--minutes", "0.03", "--out", str(tmp_path)]) == 0
    document = json.loads((tmp_path / "service.json").read_text())
    assert {one["cores"] for one in document["throughput"]} == {"apart", "together"}
    assert all(one["library"] > 0 and one["service"] > 0 for one in document["throughput"])
    assert document["soak"]["requests"] > 0
    assert document["soak"]["errors"] == 0
