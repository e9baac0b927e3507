# Every target sets itself up: a virtual environment in .venv, updated only when its requirements change.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LIGHT_READY := $(VENV)/.ready-light
READY := $(VENV)/.ready
BENCH_READY := $(VENV)/.ready-benchmarks
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: help setup demo test check docs dist audit bench clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    see what floors do to a season of grocery baskets (light set-up; results in out/demo)"
	@echo "make test    all checks and tests"
	@echo "make check   lint, format, types, import contracts and the documentation site only"
	@echo "make docs    the documentation site, in out/site: open out/site/index.html"
	@echo "make dist    wheel and sdist, in dist; the same bytes for the same commit"
	@echo "make audit   known vulnerabilities of the installed packages, if the database can be reached"
	@echo "make bench   speed of search, loop, preparing and training, and what floors cost (an hour; ARGS=--quick: a few minutes)"
	@echo "make setup   the virtual environment only, with all that tests need"
	@echo "make clean   remove the virtual environment, caches and results"

setup: $(READY)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=...")'
	@$(PYTHON) -m venv $(VENV)

# What the demo needs: no torch, no tools. What tests need comes on top of it, or includes it.
$(LIGHT_READY): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP_INSTALL) --editable '.[demo]'
	@touch $@

$(READY): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP_INSTALL) --editable '.[dev,experiments]'
	@touch $(LIGHT_READY) $@

$(BENCH_READY): $(READY)
	$(PIP_INSTALL) --editable '.[dev,experiments,benchmarks]'
	@touch $@

demo: $(LIGHT_READY)
	$(BIN)/fairsync demo $(ARGS)

# One thread for each worker: they fill the cores already, and threads that wait for each other are slower than one. One
# worker more than cores: tests of clusters and servers mostly wait.
WORKERS ?= $(shell echo $$(( $$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2) + 1 )))

test: check
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses $(WORKERS) $(ARGS)

check: $(READY) docs
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

# Strict: a broken link, a page without a place in the navigation or a docstring that cannot be read is an error (not with --quiet,
# which drops the warnings before they are counted).
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# All files in them have the time of the commit.
dist: $(READY)
	rm -rf dist
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct 2>/dev/null || echo 1700000000) $(BIN)/python -m build --no-isolation --quiet
	$(BIN)/twine check --strict dist/*

audit: $(READY)
	@$(BIN)/python .ci/audit.py $(BIN)/pip-audit

bench: $(BENCH_READY)
	@failed=0; for name in search eligibility loop explain cost promise_cost certificates staleness leases prepare models; do \
		$(BIN)/python -m benchmarks.$$name $(ARGS) || failed=1; \
	done; exit $$failed

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis out dist
