# Two commands: `make demo` and `make test`. Each does all its set-up and starts in seconds the second time.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LIBERO := $(VENV)/.installed-libero
RAY := $(VENV)/.installed-ray
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest
RAY_TEST := -m ray tests/unit/execution/cluster/test_ray.py tests/unit/engines/test_ray.py
# In one process: each simulator holds a gigabyte.
LIBERO_TEST := tests/libero -m "libero and not slow"
SKIPPED := $(VENV)/skipped-tests
# PyTorch's index of CPU builds, if this machine's pip does not know it: a plain torch brings 3 GB of CUDA that nothing here uses.
TORCH_INDEX ?=
WORKERS ?= 2
RUN ?= runs/demo

.PHONY: demo test test-core test-libero test-ray setup data sandbox lint slow docker-test test-vllm test-trl bench bank reproduce study clean
.DELETE_ON_ERROR:

demo: setup  ## train with WMRL on the built-in competitions and print where the report is
	$(BIN)/wmrl train demo --run-dir $(RUN) $(if $(wildcard $(RUN)/checkpoints/*),--resume,)

test: export WMRL_SKIPPED := $(SKIPPED)
test: setup $(LIBERO) $(RAY)  ## the suite that CI runs; what it skips is printed with its reason at the end
	@: > $(SKIPPED)
	$(PYTEST) -n $(WORKERS) --dist worksteal -m "not slow and not gpu and not vllm and not libero and not ray"
	$(PYTEST) $(LIBERO_TEST)
	$(PYTEST) $(RAY_TEST)
	@$(BIN)/python -m tests.skipped $(SKIPPED)

test-core:  ## the packages without torch, on any Python from 3.11 on: make test-core PYTHON=python3.13
	tests/core.sh $(PYTHON)

test-libero: $(LIBERO)  ## the simulator's tests
	$(PYTEST) -rs $(LIBERO_TEST)

test-ray: setup $(RAY)  ## the sandbox on a Ray cluster of two nodes, one of which dies
	$(PYTEST) -rs $(RAY_TEST)

setup: $(STAMP) sandbox data

$(STAMP): pyproject.toml constraints-cpu.txt
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version) if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints-cpu.txt $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch
	$(BIN)/python -m pip install --quiet --constraint constraints-cpu.txt --editable '.[train,docker,sb3,dev]'
	touch $@

$(LIBERO): $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints-cpu.txt --editable '.[libero]' && touch $@ || \
	  echo "The extra [libero] could not be installed, pip says why above: the simulator's tests will be skipped."

$(RAY): $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints-cpu.txt --editable '.[ray]' && touch $@ || \
	  echo "The extra [ray] could not be installed, pip says why above: its tests will be skipped."

sandbox: $(STAMP)  ## the environment that solutions run in, apart from ours
	$(BIN)/wmrl sandbox build

data: $(STAMP)  ## the 18 built-in competitions
	$(BIN)/wmrl tasks prepare builtin

lint: $(STAMP)
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

slow: setup $(LIBERO)
	$(BIN)/python -m pytest -m "slow and not gpu and not vllm and not libero"
	$(PYTEST) -rs tests/libero -m "slow and libero"

VLLM := .venv-vllm
VLLM_ENVIRONMENT := VLLM_CPU_KVCACHE_SPACE=1 VLLM_ENABLE_V1_MULTIPROCESSING=0 VLLM_CPU_OMP_THREADS_BIND=nobind VLLM_NO_USAGE_STATS=1 \
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=2

test-vllm: $(VLLM)/.installed $(STAMP)  ## the vLLM engine on its CPU build, in an environment of its own (12 minutes to install, once)
	$(BIN)/wmrl model fetch smollm2
	$(VLLM_ENVIRONMENT) $(VLLM)/bin/python -m pytest -m vllm tests/vllm

$(VLLM)/.installed: tests/vllm/setup.sh
	tests/vllm/setup.sh $(VLLM) $(PYTHON)
	touch $@

TRL := .venv-trl

test-trl: $(TRL)/.installed  ## the TRL adapter in a real GRPOTrainer, and our loss against TRL's (an environment on top of .venv)
	OMP_NUM_THREADS=1 $(TRL)/bin/python -m pytest tests/trl tests/unit/learn/test_trl_loss.py

$(TRL)/.installed: $(STAMP) tests/trl/setup.sh
	tests/trl/setup.sh $(TRL) $(VENV)
	touch $@

bench: setup
	$(BIN)/python benchmarks/execution.py && $(BIN)/python benchmarks/vector.py && $(BIN)/python benchmarks/loop.py

clean:
	rm -rf $(VENV) $(VLLM) $(TRL) build dist *.egg-info runs

bank: setup  ## really execute the programs of the study once; about an hour on two cores, goes on where it stopped
	$(BIN)/python benchmarks/study/bank.py run && $(BIN)/python benchmarks/study/bank.py write

STUDY := $(BIN)/python benchmarks/study/run.py

reproduce: setup  ## a reduced version of docs/reproduction.md from the repository's execution bank, 15 CPU minutes, 8 on two cores
	$(STUDY) main --arms real,world-model,mixture,wmrl,cv,same-budget --seeds 5 --out runs/reproduce.jsonl
	$(BIN)/python benchmarks/study/tables.py --quick runs/reproduce.jsonl

study: setup  ## the whole of docs/reproduction.md; goes on where it stopped
	$(STUDY) main --seeds 10 && $(STUDY) structured --seeds 5 && $(STUDY) sensitivity --seeds 5 && $(STUDY) live --seeds 1
	$(BIN)/wmrl model fetch smollm2 && $(STUDY) smollm2 --seeds 1
	$(BIN)/python benchmarks/study/world_model.py && $(BIN)/python benchmarks/study/tables.py
