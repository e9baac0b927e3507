"""Without optional packages, everything else works, and an error names the pip command."""

import json
import pkgutil
import subprocess
import sys

import pytest

import fairsync
from fairsync.extras import EXTRAS

# Runs in a process of its own, in which these packages cannot be imported.
BARE = f"""
import importlib, json, pkgutil, sys
for name in {tuple(EXTRAS)}:
    sys.modules[name] = None
"""


def run_without_extras(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", BARE + script], capture_output=True, text=True, check=True)
    return done.stdout


def test_retrieval_needs_no_extra() -> None:
    script = """
import numpy as np
import fairsync as fs
from fairsync import *
from fairsync.data import synthetic

data = synthetic(n_items=200, n_groups=4, n_users=50, dim=8, seed=1)
with fs.FairRetriever(fs.Catalog(data.embeddings, data.groups), k=5, floors=20, horizon=50) as retriever:
    found = retriever.retrieve(data.users, explain=True)
    report = retriever.report(fs.hindsight(retriever.catalog, data.users, k=5, floors=20))
said = {}
for name, call in {
    "plot": report.plot,
    "polars": found.to_polars,
    "save": lambda: retriever.save("x"),
    "open": lambda: fs.open_catalog,
    "client": lambda: fs.Client,
    "postgres": lambda: fs.SqlLedger("postgresql://db/shop", 4),
    "dataset": lambda: importlib.import_module("fairsync.data").Dataset,
    "ray": lambda: fs.RayIndex,
    "models": lambda: importlib.import_module("fairsync.models"),
    "milvus": lambda: fs.MilvusIndex(retriever.catalog, "x", "y"),
}.items():
    try:
        call()
    except fs.MissingPackageError as error:
        said[name] = str(error)
print(json.dumps({"esp": report.esp, "text": len(str(report)) + len(str(found.explain(0))), "said": said}))
"""
    answer = json.loads(run_without_extras(script))
    assert answer["esp"] == 1.0
    expected = {"plot": "plot", "polars": "data", "save": "data", "open": "data", "client": "client"}
    expected |= {"postgres": "postgres", "dataset": "data", "ray": "ray", "models": "data", "milvus": "milvus"}
    assert set(answer["said"]) == set(expected)
    for name, extra in expected.items():
        assert f"pip install 'fairsync[{extra}]'" in answer["said"][name]


def test_commands_that_need_an_extra_say_so() -> None:
    script = """
from typer.testing import CliRunner
from fairsync.cli import app

answers = {}
for command in (["--help"], ["demo"], ["prepare", "table", "--log", "x"], ["train", "data/x"], ["serve", "x.toml"]):
    answer = CliRunner().invoke(app, command, env={"COLUMNS": "200", "NO_COLOR": "1"})
    answers[command[0]] = [answer.exit_code, answer.output]
print(json.dumps(answers))
"""
    answers = json.loads(run_without_extras(script))
    assert answers.pop("--help")[0] == 0
    for command, extra in (("demo", "demo"), ("prepare", "data"), ("train", "data"), ("serve", "service")):
        code, output = answers[command]
        assert code == 1
        assert f"pip install 'fairsync[{extra}]'" in output
        assert len(output.strip().splitlines()) == 1


@pytest.mark.parametrize("package", ["polars"])
def test_no_module_fails_with_another_error(package: str) -> None:
    names = [module.name for module in pkgutil.walk_packages(fairsync.__path__, "fairsync.")]
    script = f"""
import sys
sys.modules[{package!r}] = None
import importlib
from fairsync.errors import MissingPackageError
for name in {names}:
    try:
        importlib.import_module(name)
    except MissingPackageError:
        pass
"""
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
