"""Control groups: which folder can hold those of runs, what is written there, what is read.

The folders here are a double of the kernel's hierarchy; where this machine has a real one, every test of a limit runs in it.
"""

import os

import pytest

from wmrl_envs.execution.process.box import cgroup
from wmrl_envs.execution.process.box.tiers import start_time

LIMITS = {"memory_mb": 100, "processes": 5}


def hierarchy(root, *groups):
    """Folders with the files the kernel makes; of each group the controllers of its children."""
    for name, controllers in groups:
        folder = root / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup.subtree_control").write_text(controllers)
        (folder / "cgroup.procs").write_text("")
    return str(root)


def test_the_nearest_group_with_the_controllers_is_taken(tmp_path):
    root = hierarchy(tmp_path, ("", "cpu memory pids"), ("user", "memory pids"), ("user/session", "cpu"))
    assert cgroup.parent_group(root, "/user/session") == f"{root}/user"
    assert cgroup.parent_group(root, "/") == root
    hierarchy(tmp_path, ("", "hugetlb"), ("user", "memory"))
    assert cgroup.parent_group(root, "/user/session") is None


def test_without_a_hierarchy_there_is_no_group(tmp_path, monkeypatch):
    monkeypatch.setattr(cgroup, "_mounted", lambda: None)
    assert cgroup.parent_group() is None


@pytest.fixture
def kernels_files(monkeypatch):
    """The kernel makes a group's files with its folder, and removes both."""
    made = os.mkdir

    def mkdir(path, *more):
        made(path, *more)
        for name in ("memory.max", "memory.swap.max", "pids.max", "cpu.max", "cgroup.procs", "cgroup.kill"):
            open(f"{path}/{name}", "w").close()

    def rmdir(path):
        for name in os.listdir(path):
            os.unlink(f"{path}/{name}")
        real(path)

    real = os.rmdir
    monkeypatch.setattr(cgroup.os, "mkdir", mkdir)
    monkeypatch.setattr(cgroup.os, "rmdir", rmdir)


def content(group, name):
    with open(f"{group.path}/{name}") as f:
        return f.read()


def test_a_run_gets_its_limits_and_its_group_ends_with_it(tmp_path, kernels_files):
    group = cgroup.RunGroup(str(tmp_path), LIMITS, 2)
    assert content(group, "memory.max") == str(116 << 20)
    assert content(group, "memory.swap.max") == "0"
    assert content(group, "pids.max") == "6"
    assert content(group, "cpu.max") == "200000 100000"
    group.enter()
    assert content(group, "cgroup.procs") == "0"
    (tmp_path / os.path.basename(group.path) / "memory.stat").write_text(
        "anon 1048576\nfile 99999999\nshmem 2097152\nkernel 0\n"
    )
    assert group.held_mb() == 3
    events = tmp_path / os.path.basename(group.path) / "memory.events"
    events.write_text("max 5\noom_kill 0\n")
    assert not group.out_of_memory()
    events.write_text("max 5\noom_kill 1\n")
    assert group.out_of_memory()
    group.remove()
    assert not os.path.exists(group.path)


def test_groups_of_dead_supervisors_are_removed_and_no_others(tmp_path):
    mine = f"wmrl-run-{os.getpid()}-{start_time(os.getpid())}"
    for name in ("wmrl-run-999999999-5", mine, "system.slice"):
        (tmp_path / name).mkdir()
    cgroup.remove_dead(str(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([mine, "system.slice"])
