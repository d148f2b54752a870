#!/usr/bin/env bash
# The virtual environment of `make test-trl`: TRL on top of the packages of another environment (a minute, once).
#
#   tests/trl/setup.sh VENV BASE
#
# VENV sees every package of BASE (torch, transformers, this package) through a .pth file, and BASE stays as it is.
set -euo pipefail
venv=${1:?usage: tests/trl/setup.sh VENV BASE}
base=${2:?usage: tests/trl/setup.sh VENV BASE}

test -x "$venv/bin/python" || "$base/bin/python" -m venv "$venv"
packages=$("$base/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
own=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo "import site; site.addsitedir('$packages')" >"$own/base.pth"
"$venv/bin/python" -m pip install --quiet trl==1.16.0
