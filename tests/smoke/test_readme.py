"""The README's blocks run as they are printed, each ends with a line that says something, and the page keeps its form. Journey 2 is in tests/libero."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.readme import README, journey
from wmrl_envs.errors import WmrlError
from wmrl_envs.execution.environment import load_environment
from wmrl_envs.tasks import load_competition

pytestmark = pytest.mark.timeout(600)


def run(number, folder):
    language, code = journey(number)
    command = ["bash", "-euc", code] if language == "bash" else [sys.executable, "-c", code]
    # A folder of its own, and the `wmrl` of this Python; nothing of the repository is on the path but the packages.
    env = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=580)
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def test_a_surrogate_in_your_own_loop(tmp_path):
    done = run(1, tmp_path)
    real, predicted = map(int, re.fullmatch(r"(\d+) steps were really taken, (\d+) predicted\n", done.stdout).groups())
    assert 0 < real < predicted / 3
    assert real + predicted == 8 * 200
    assert "Warning" not in done.stderr, "a newcomer is not warned"


@pytest.fixture
def built():
    try:
        load_environment()
        load_competition("credit-default")
    except WmrlError as error:  # neither data nor sandbox is built by a test
        pytest.skip(f"needs `make setup`: {error}")


def test_evaluate_an_agent(tmp_path, built):
    done = run(3, tmp_path)
    (percent,) = re.fullmatch(r"better than (\d+)% of the leaderboard\n", done.stdout).groups()
    assert 0 < int(percent) < 100


def test_post_train_an_agent(tmp_path, built):
    done = run(4, tmp_path)
    assert (tmp_path / "runs" / "mine" / "report.html").is_file()
    assert re.search(r"gain", done.stdout)
    assert "Resumed at step 2 of 4" in done.stderr
    assert "Changed from here on: train.steps 2 -> 4." in done.stderr
    assert "# memory:" in done.stdout


def test_the_page_keeps_its_form():
    text = README.read_text(encoding="utf-8")
    assert max(map(len, text.splitlines())) < 200
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (README.parent / target).exists(), target
    status = text.partition("## Status")[2].partition("\n## ")[0]
    for row in (line for line in status.splitlines() if line.startswith("|")):
        for cell in row.strip("|").split("|"):
            assert len(re.sub(r"\]\([^)]*\)", "]", cell).split()) <= 10, cell
