import os
from concurrent.futures import ThreadPoolExecutor

import pytest

import wmrl_envs.execution
from tests.doubles import ObedientSandbox
from wmrl_envs.envs.sandbox_lease import SandboxLease


@pytest.fixture
def made(monkeypatch):
    boxes = []

    def make_sandbox(kind):
        boxes.append(ObedientSandbox())
        return boxes[-1]

    monkeypatch.setattr(wmrl_envs.execution, "make_sandbox", make_sandbox, raising=False)
    return boxes


def test_a_sandbox_is_made_on_first_use_and_shared(made):
    leases = [SandboxLease("test") for _ in range(8)]
    assert made == []
    with ThreadPoolExecutor(8) as pool:
        boxes = list(pool.map(lambda lease: lease.sandbox, leases))
    assert len(made) == 1
    assert all(box is made[0] for box in boxes)
    for lease in leases:
        assert made[0].closed == 0
        lease.release()
        lease.release()
    assert made[0].closed == 1


def test_kinds_are_apart_and_a_released_lease_can_be_used_again(made):
    one, other = SandboxLease("one"), SandboxLease("other")
    assert one.sandbox is not other.sandbox
    one.release()
    assert (made[0].closed, made[1].closed) == (1, 0)
    assert one.sandbox is made[2]
    one.release()
    other.release()
    assert [box.closed for box in made] == [1, 1, 1]


def test_a_lease_that_was_never_used_releases_nothing(made):
    SandboxLease("test").release()
    assert made == []


def test_a_forked_child_makes_its_own_and_leaves_its_parents_open(made):
    parent = SandboxLease("test")
    box = parent.sandbox
    read, write = os.pipe()
    child = os.fork()
    if child == 0:  # nothing of pytest may run in the child
        try:
            parent.release()
            mine = SandboxLease("test")
            apart = mine.sandbox is not box
            mine.release()
            os.write(write, b"ok" if apart and box.closed == 0 and made[-1].closed == 1 else b"no")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 2) == b"ok"
    parent.release()
    assert box.closed == 1
