# Two commands: `make demo` and `make test`. Each does all its set-up and starts in seconds the second time.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= 2
RUN ?= runs/demo

.PHONY: demo test setup data sandbox lint slow docker-test bench clean
.DELETE_ON_ERROR:

demo: setup  ## train with WMRL on the built-in competitions and print where the report is
	$(BIN)/wmrl train demo --run-dir $(RUN) $(if $(wildcard $(RUN)/checkpoints/*),--resume,)

test: setup  ## the suite that CI runs
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m "not slow and not gpu and not vllm and not libero"

setup: $(STAMP) sandbox data

$(STAMP): pyproject.toml constraints-cpu.txt
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version) if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints-cpu.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints-cpu.txt --editable '.[train,docker,sb3,dev]'
	touch $@

sandbox: $(STAMP)  ## the environment that solutions run in, apart from ours
	$(BIN)/wmrl sandbox build

data: $(STAMP)  ## the 18 built-in competitions
	$(BIN)/wmrl tasks prepare builtin

lint: $(STAMP)
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

slow: setup
	$(BIN)/python -m pytest -m "slow and not gpu and not vllm and not libero"

bench: setup
	$(BIN)/python benchmarks/execution.py && $(BIN)/python benchmarks/vector.py && $(BIN)/python benchmarks/loop.py

clean:
	rm -rf $(VENV) build dist *.egg-info runs
