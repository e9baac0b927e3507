"""Tables and figures as files: all digits for programs, few for people, the same bytes each time."""

import csv
from pathlib import Path

from matplotlib.figure import Figure

from fairsync.experiments.exhibit import Exhibit, ExhibitTable

TABLE = ExhibitTable(
    ["method", "recall", "groups", "p"], [["none", 1 / 3, 1_200, None], ["fairsync", 0.25, 7, 0.04]], digits=3
)


def drawn() -> Figure:
    figure = Figure()
    axes = figure.subplots()
    axes.plot([0, 1], [1, 3], label="a line")
    axes.legend()
    return figure


def exhibit() -> Exhibit:
    return Exhibit("table-9", "Table 9: a try", "What it is.", TABLE, drawn())


def test_markdown_for_people() -> None:
    assert TABLE.to_markdown().splitlines() == [
        "| method | recall | groups | p |",
        "|---|---:|---:|---:|",
        "| none | 0.333 | 1,200 | – |",
        "| fairsync | 0.250 | 7 | 0.040 |",
    ]


def test_csv_for_programs(tmp_path: Path) -> None:
    TABLE.write_csv(tmp_path / "t.csv")
    with (tmp_path / "t.csv").open(newline="", encoding="utf-8") as file:
        head, first, _ = csv.reader(file)
    assert head == ["method", "recall", "groups", "p"]
    assert (float(first[1]), int(first[2]), first[3]) == (1 / 3, 1_200, "")


def test_files(tmp_path: Path) -> None:
    files = exhibit().write(tmp_path / "new")
    assert [file.name for file in files] == ["table-9.csv", "table-9.md", "table-9.svg", "table-9.png"]
    text = files[1].read_text(encoding="utf-8")
    assert text.startswith("## Table 9: a try\n\nWhat it is.\n\n![Table 9: a try](table-9.svg)\n\n| method |")
    assert files[2].read_text(encoding="utf-8").count("<svg") == 1
    assert files[3].read_bytes()[:4] == b"\x89PNG"
    plain = Exhibit("table-9", "t", "w", TABLE).write(tmp_path / "plain")
    assert [file.suffix for file in plain] == [".csv", ".md"]


def test_the_same_bytes_each_time(tmp_path: Path) -> None:
    first, second = exhibit().write(tmp_path / "a"), exhibit().write(tmp_path / "b")
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name
