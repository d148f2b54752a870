"""What a limit is recognised by: the class and number of an uncaught exception, never its message."""

import pytest

from wmrl_envs.execution.classify import classify
from wmrl_envs.outcome import ExecutionStatus

TRACE = 'Traceback (most recent call last):\n  File "/work/solution.py", line 3, in <module>\n    f()\n'
CHAIN = "\n\nDuring handling of the above exception, another exception occurred:\n\n"


@pytest.mark.parametrize(
    ("stderr", "status"),
    [
        (TRACE + "MemoryError", "memory"),
        (TRACE + "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 8 GiB", "memory"),
        (TRACE + "OSError: [Errno 12] Cannot allocate memory", "memory"),
        (TRACE + "RuntimeError: can't start new thread", "processes"),
        (TRACE + "BlockingIOError: [Errno 11] Resource temporarily unavailable", "processes"),
        (
            TRACE + "RuntimeError: can't start new thread" + CHAIN + TRACE + "AttributeError: 'X' has no attribute 'y'",
            "processes",
        ),
        (TRACE + "OSError: [Errno 28] No space left on device", "disk"),
        (TRACE + "ValueError: bad: Cannot allocate memory for your ideas", "agent_error"),
        (TRACE + "ValueError: [Errno 28] is what I feared", "agent_error"),
        (TRACE + "ValueError: RuntimeError: can't start new thread", "agent_error"),
        (TRACE + "RuntimeError: File too large", "agent_error"),
        ("No space left on device", "agent_error"),
        ("BlockingIOError: [Errno 11] Resource temporarily unavailable", "agent_error"),
    ],
)
def test_the_exception_that_ended_a_program_tells_the_limit(stderr, status):
    assert classify("", 1, stderr + "\n", None) == status


def test_a_program_that_waits_for_processes_it_may_not_have_ran_into_that_limit():
    assert classify("timeout", None, "", None, crowded=True) is ExecutionStatus.PROCESSES
    assert classify("timeout", None, "", None) is ExecutionStatus.TIMEOUT
    assert classify("", 0, "", None, crowded=True) is ExecutionStatus.OK
