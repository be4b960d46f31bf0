# Two commands matter: `make demo` and `make test`. Both set up .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d%d" % sys.version_info[:2])')
LOCK := requirements/py$(VERSION).txt
STAMP := $(VENV)/.installed-$(VERSION)
UPGRADE ?= --upgrade
EXTRAS := --extra sim --extra parquet --extra minari --group dev

CASES := $(basename $(notdir $(wildcard requirements/cases/*.txt)))
CASE_ENVS := $(CASES:%=.venv-cases/%/.installed)

.PHONY: demo test docs slow setup lint types check lock bench-setup bench-test case cases build clean help

help: ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: setup ## run the main job on data made here
	@$(BIN)/puorl demo

test: setup ## run the tests (those marked slow excepted)
	@$(BIN)/python -m pytest -n 2 --dist loadfile

slow: setup ## run the long tests too, with optimised programs
	@JAX_DISABLE_MOST_OPTIMIZATIONS=0 XLA_FLAGS= $(BIN)/python -m pytest -n 2 --dist loadfile -m "slow or not slow"

docs: setup ## build the documentation site into site/ (warnings are errors)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

lint: setup ## style and format
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: setup ## static types, standard strictness
	@$(BIN)/basedpyright

check: lint types docs test ## everything that CI runs

setup: $(STAMP) ## create .venv from the lock file of this Python version

# `venv --without-pip` and `pip --python` need nothing beyond Debian's python3 and pip (no python3-venv).
$(STAMP): $(LOCK) pyproject.toml
	@test -d $(VENV) || $(PYTHON) -m venv --without-pip $(VENV)
	@echo "setup: installing $(LOCK) into $(VENV) (1 to 3 minutes)"
	@$(PYTHON) -m pip --python $(BIN)/python install --quiet --disable-pip-version-check --root-user-action=ignore --require-hashes -r $(LOCK)
	@$(PYTHON) -m pip --python $(BIN)/python install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --no-build-isolation --editable .
	@rm -f $(VENV)/.installed-*; touch $@

$(LOCK):
	@echo "no lock file for this Python: expected one of $(wildcard requirements/py3*.txt), need $(LOCK); use PYTHON=python3.11 or newer, or run 'make lock'" >&2; exit 2

lock: ## rewrite the lock files (needs uv); `make lock UPGRADE=` keeps versions where it can
	@for v in 3.11 3.12 3.13; do \
	  uv pip compile -q --universal $(UPGRADE) pyproject.toml $(EXTRAS) --python-version $$v \
	    --no-emit-index-url --no-header --generate-hashes -o requirements/py$$(echo $$v | tr -d .).txt || exit 1; done

bench-setup: ## second environment with heavy peers (torch, d3rlpy), for comparisons only
	@test -d .venv-bench || $(PYTHON) -m venv --without-pip .venv-bench
	@$(PYTHON) -m pip --python .venv-bench/bin/python install --quiet --disable-pip-version-check --root-user-action=ignore -r requirements/bench.txt
	@$(PYTHON) -m pip --python .venv-bench/bin/python install --quiet --disable-pip-version-check --root-user-action=ignore --editable '.[sim,minari]'

bench-test: bench-setup ## the tests that need d3rlpy
	@.venv-bench/bin/python -m pytest tests/data/test_d3rlpy.py

case: setup $(CASE:%=.venv-cases/%/.installed) ## one of examples/cases at small size: make case CASE=actuator
	@$(BIN)/python examples/cases/run.py $(CASE) --size small

cases: setup $(CASE_ENVS) ## all of examples/cases at full size (hours on two cores)
	@$(BIN)/python examples/cases/run.py --size full --rows benchmarks/results/cases

# Complete lists, installed without dependencies: a simulator's own may not resolve.
.venv-cases/%/.installed: requirements/cases/%.txt
	@test -d $(@D) || $(PYTHON) -m venv --without-pip $(@D)
	@$(PYTHON) -m pip --python $(@D)/bin/python install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps -r $<
	@touch $@

build: setup ## wheel and sdist into dist/
	@$(BIN)/python -m build --no-isolation

clean: ## remove what make created
	@rm -rf $(VENV) .venv-bench .venv-cases dist site .pytest_cache .ruff_cache .hypothesis
