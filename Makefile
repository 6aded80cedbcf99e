# The two commands that do all the set-up:
#   make watch CHECKPOINTS=DIR    watch a run: measuring, API and dashboard
#   make test                     the fast tests
# Further: make demo [FAULT=none] · make check · make test-slow · make test-genuine · make fuzz [SECONDS=600]
# Further: make bench · make help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CONSTRAINTS := .ci/constraints.txt
FAULT ?= attention
SECONDS ?= 600
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help watch demo test test-slow test-genuine fuzz check format bench clean

help:
	@sed -n 's/^#   //p; s/^# Further: //p' Makefile

$(VENV)/installed: pyproject.toml $(CONSTRAINTS)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) --editable .
	@touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) --editable '.[dev]'
	@touch $@

watch: $(VENV)/installed
	@test -n "$(CHECKPOINTS)" || { echo 'which directory? make watch CHECKPOINTS=DIR' >&2; exit 64; }
	@$(BIN)/foreshock watch "$(CHECKPOINTS)" $(ARGS)

demo: $(VENV)/installed
	@$(BIN)/foreshock demo --fault $(FAULT) $(ARGS)

test: $(VENV)/installed-dev
	$(BIN)/python -m pytest -m 'not slow and not genuine and not gpu' $(ARGS)

test-slow: $(VENV)/installed-dev
	$(BIN)/python -m pytest -m 'slow and not genuine and not gpu' --timeout 900 $(ARGS)

test-genuine: $(VENV)/installed-dev
	$(BIN)/python -m pytest -m genuine --timeout 1200 $(ARGS)

fuzz: $(VENV)/installed-dev
	@for parser in safetensors shard_index pickle torch_file dcp_index; do \
		echo "$$parser, $(SECONDS) seconds"; $(BIN)/python -m tests.fuzz $$parser $(SECONDS) || exit 1; done

check: $(VENV)/installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/installed-dev
	$(BIN)/python benchmarks/spectra.py
	$(BIN)/python benchmarks/memory.py
	$(BIN)/python benchmarks/headers.py

clean:
	rm -rf $(VENV) .genuine build dist .mypy_cache .ruff_cache .pytest_cache
