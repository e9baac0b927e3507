"""The report: nothing is left unescaped, nothing is fetched, and every link leads somewhere."""

from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from fairsync.data.dataset import Dataset
from fairsync.experiments.claims import CLAIMS, Judged
from fairsync.experiments.exhibit import Exhibit, ExhibitTable
from fairsync.experiments.page import render_page
from fairsync.experiments.reproduction import Reproduction
from fairsync.experiments.reproduction_setting import Setting
from fairsync.experiments.verdicts import Verdict

EVIL = '<script>alert("&")</script>'
EMPTY = {"meta", "link", "br", "hr", "img", "input"}


class Reader(HTMLParser):
    """Collects what a page refers to, and checks that what is opened is closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.ids: Counter[str] = Counter()
        self.links: list[str] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        if tag not in EMPTY:
            self.open.append(tag)
        for name, value in attrs:
            assert not name.startswith("on"), name
            if name == "id":
                self.ids[str(value)] += 1
            if name in ("href", "src", "xlink:href"):
                self.links.append(str(value))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in EMPTY:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def drawn(words: str) -> Figure:
    figure = Figure()
    axes = figure.subplots()
    axes.plot([0, 1], [1, 3])
    axes.set_title(words)
    return figure


@pytest.fixture
def run(dataset: Dataset, setting: Setting) -> Reproduction:
    facts = replace(dataset.facts, name=f"data {EVIL}")
    rows: list[list[str | float | None]] = [["none", 1 / 3], [f"mine {EVIL}", None], ["best", 0.75]]
    table = ExhibitTable(["method", f"recall {EVIL}"], rows, bold={(2, 1)}, starred={(2, 1), (1, 0)})
    exhibits = [
        Exhibit("table-9", f"Table 9 {EVIL}", f"Words {EVIL}", table, drawn(EVIL), {"p-values": table}),
        Exhibit("figure-9", "Figure 9", "Other words", ExhibitTable(["method", "x"], [["none", 1.0]] * 50), drawn("b")),
        Exhibit("plain", "No figure", "Words", ExhibitTable(["n"], [[1_234]])),
    ]
    rulings = ("holds", "does not hold", "not comparable", "not run")
    claims = [
        Judged(claim, Verdict(rulings[place % 4], f"figures {EVIL}"))  # type: ignore[arg-type]
        for place, claim in enumerate(replace(one, experiment="table-9") for one in CLAIMS)
    ]
    return Reproduction(replace(setting, data=EVIL), facts, exhibits, {f"Order {EVIL}": f"why {EVIL}"}, claims)


def page_of(run: Reproduction, folder: Path) -> str:
    for one in run.exhibits:
        one.write(folder / "exhibits")
    return render_page(run, folder)


def test_everything_is_there_and_escaped(run: Reproduction, tmp_path: Path) -> None:
    reader = Reader(page_of(run, tmp_path))
    text = " ".join("".join(reader.text).split())
    assert reader.tags["script"] == 0
    for words in (
        f"FairSync on data {EVIL}", f"Table 9 {EVIL}", f"Words {EVIL}", f"mine {EVIL}", f"recall {EVIL}",
        f"figures {EVIL}", f"Order {EVIL}: why {EVIL}", "1,234", "A quick run", "0.33", "The numbers: 50 rows",
    ):  # fmt: skip
        assert words in text
    for term in (run.setting.fingerprint, "svd", "14 exposures", "5, 10", "every4 requests"):
        assert term in text
    for one in run.claims:
        assert one.claim.sentence in text
    counts = Counter(one.verdict.ruling for one in run.claims)
    assert f"{counts['holds']} hold{counts['does not hold']} do not hold{counts['not comparable']} not comp" in text


def test_it_needs_nothing_beside_it(run: Reproduction, tmp_path: Path) -> None:
    page = page_of(run, tmp_path)
    reader = Reader(page)
    for word in ("@import", "<script", "<link", "<img", "<iframe", "javascript:"):
        assert word not in page.replace("&lt;script", "")
    inside = {link[1:] for link in reader.links if link.startswith("#")}
    assert inside <= set(reader.ids)
    beside = {link for link in reader.links if not link.startswith("#")}
    (tmp_path / "report.json").write_text("{}")
    assert beside
    assert all((tmp_path / link).is_file() for link in beside)


def test_ids_of_figures_do_not_clash(run: Reproduction, tmp_path: Path) -> None:
    reader = Reader(page_of(run, tmp_path))
    assert reader.tags["svg"] == 2
    assert set(reader.ids.values()) == {1}


def test_marks(run: Reproduction, tmp_path: Path) -> None:
    page = page_of(run, tmp_path)
    assert '<td class="number"><b>0.75</b><sup>*</sup></td>' in page
    assert "/script&gt;<sup>*</sup></td>" in page
    assert '<td class="number">0.33</td>' in page


def test_only_a_quick_run_is_cautioned(run: Reproduction, tmp_path: Path) -> None:
    assert "not to be quoted" not in page_of(replace(run, setting=replace(run.setting, quick=False)), tmp_path)
    assert "Not possible here" not in page_of(replace(run, impossible={}), tmp_path)
