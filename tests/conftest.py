"""Fixtures of all tests, and: what is skipped in several runs of pytest is noted in one file, which `python -m tests.skipped` prints once at the end."""

import os
from collections import Counter

import pytest

from wmrl_envs.tasks import grader


def pytest_terminal_summary(terminalreporter):
    file = os.environ.get("WMRL_SKIPPED")
    if not file:
        return
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in terminalreporter.stats.get("skipped", ()))
    with open(file, "a", encoding="utf-8") as out:
        out.writelines(f"{count}\t{' '.join(reason.split())}\n" for reason, count in reasons.items())


@pytest.fixture(scope="session", autouse=True)
def grading_processes_stay():
    """Environments that come and go in the tests share the processes that grade; none starts before the first grading."""
    grader.shared().hold()
    yield
    grader.shared().close()
