"""The output of benchmarks."""

import io
import json
import sys
from pathlib import Path

from rich.console import Console

sys.path.append(str(Path(__file__).parents[2]))  # the benchmarks are no part of the package


from benchmarks import output


def screen() -> Console:
    return Console(file=io.StringIO(), width=160)


def test_a_claim_decides_the_exit_code_and_is_written(tmp_path: Path) -> None:
    table = output.Table("title", ["a", "b"], [["x|y", "1"]])
    shown = screen()
    claims = [output.Claim("slow", 1.3, 1.25), output.Claim("fast", 2.5, 2.0, at_most=False)]
    assert output.finish("some", [table], claims, {"a": 1}, tmp_path, shown) == 1
    assert output.finish("other", [table], claims[1:], {"a": 1}, tmp_path, shown) == 0
    assert [claim["met"] for claim in json.loads((tmp_path / "some.json").read_text())["claims"]] == [False, True]
    text = (tmp_path / "some.md").read_text()
    assert "| a | b |\n| --- | ---: |\n| x\\|y | 1 |" in text
    assert "NOT met: slow: 1.3 (claimed ≤ 1.25)" in text
    assert isinstance(shown.file, io.StringIO)
    assert "NOT met: slow" in shown.file.getvalue()


def test_a_table_has_a_row_for_each_line() -> None:
    columns = {"word": str.upper, "letters": lambda word: f"{len(word)}"}
    table = output.Table.of("title", ["ab", "c"], columns)
    assert (table.columns, table.rows) == (["word", "letters"], [["AB", "2"], ["C", "1"]])


def test_every_line_is_shown_once() -> None:
    assert list(output.shown(screen(), [3, 4], str)) == [3, 4]
