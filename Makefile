# Everything here sets itself up: a virtual environment in .venv, made anew only when what it holds changes.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BENCH_READY := $(VENV)/.ready-benchmarks
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: help setup demo test check bench clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    see what floors do, on generated data (results in out/demo)"
	@echo "make test    all checks and tests"
	@echo "make check   lint, format and types only"
	@echo "make bench   how fast search and the loop are, and what floors cost (half an hour; ARGS=--quick: a few minutes)"
	@echo "make setup   the virtual environment only"
	@echo "make clean   remove the virtual environment, caches and results"

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=...")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) --editable '.[dev]'
	@touch $@

$(BENCH_READY): $(READY)
	$(PIP_INSTALL) --editable '.[dev,benchmarks]'
	@touch $@

demo: $(READY)
	$(BIN)/fairsync demo $(ARGS)

test: check
	$(BIN)/python -m pytest --numprocesses auto $(ARGS)

check: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

bench: $(BENCH_READY)
	@failed=0; for name in search loop cost; do \
		$(BIN)/python -m benchmarks.$$name $(ARGS) || failed=1; \
	done; exit $$failed

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis out
