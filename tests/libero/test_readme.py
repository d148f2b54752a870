"""Journey 2 of the README as it is printed."""

import os
import subprocess
import sys

import pytest

from tests.readme import journey


@pytest.mark.libero
@pytest.mark.timeout(600)
def test_a_policy_in_libero(tmp_path):
    _, code = journey(2)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True, timeout=580
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert lines[0].startswith("loading")
    assert [line.partition(":")[0] for line in lines[1:-1]] == [f"chunk {n}" for n in range(1, len(lines) - 1)]
    assert lines[-1] in ("success", f"no success in {len(lines) - 2} chunks of actions")
