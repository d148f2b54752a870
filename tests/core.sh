#!/usr/bin/env bash
# tests/core.sh [PYTHON]: the packages without torch on this Python, in an environment of its own (`make test-core PYTHON=python3.13`).
# Every test but the sandbox's (whose programs have a Python of their own) that names neither torch nor a package built on it, and wmrl_envs' doctests; importing both packages comes first.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:-python3}
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
venv=.venv-core-$version
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --editable . pytest pytest-timeout pytest-xdist hypothesis
"$venv/bin/python" -c '
import importlib.util
assert importlib.util.find_spec("torch") is None, "torch is installed: this is no test of the packages without it"
import wmrl_envs, wmrl_train.cli'
mapfile -t tests < <(grep -rLE 'torch|transformers|peft|stable_baselines3|matplotlib|tiny_model|\b(tiny)\b|pyarrow|h5py' --include='test_*.py' \
  tests/golden tests/property tests/unit/{correction,envs,execution/recorded,tasks,world_models,wrappers,anchoring,config} 2>/dev/null)
OMP_NUM_THREADS=1 "$venv/bin/python" -m pytest -n "${WORKERS:-2}" -m "not slow and not gpu and not vllm and not libero and not ray and not docker" wmrl_envs "${tests[@]}"
echo "The packages without torch pass on Python $version."
