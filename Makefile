# Two commands: `make demo` and `make test`. Each does all its set-up and starts in seconds the second time.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LIBERO := $(VENV)/.installed-libero
RAY := $(VENV)/.installed-ray
RAY_TEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -rs -m ray tests/unit/execution/cluster/test_ray.py tests/unit/engines/test_ray.py
# In one process: each simulator holds a gigabyte. What is skipped says why.
LIBERO_TEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -rs tests/libero
WORKERS ?= 2
RUN ?= runs/demo
# Threads that spin while they wait take the cores from the sandbox.
export OMP_WAIT_POLICY := passive

.PHONY: demo test test-libero test-ray setup data sandbox lint slow docker-test test-vllm test-trl bench bank reproduce study clean
.DELETE_ON_ERROR:

demo: setup  ## train with WMRL on the built-in competitions and print where the report is
	$(BIN)/wmrl train demo --run-dir $(RUN) $(if $(wildcard $(RUN)/checkpoints/*),--resume,)

test: setup $(LIBERO) $(RAY)  ## the suite that CI runs
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow and not gpu and not vllm and not libero and not ray"
	$(LIBERO_TEST) -m "libero and not slow"
	$(RAY_TEST)

test-libero: $(LIBERO)  ## the simulator's tests
	$(LIBERO_TEST) -m "libero and not slow"

test-ray: setup $(RAY)  ## the sandbox on a Ray cluster of two nodes, one of which dies
	$(RAY_TEST)

setup: $(STAMP) sandbox data

$(STAMP): pyproject.toml constraints-cpu.txt
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version) if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints-cpu.txt torch
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
	$(LIBERO_TEST) -m "slow and libero"

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
