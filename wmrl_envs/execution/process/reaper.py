"""Removing what a killed harness could not: folders, and processes in them, whose owner is dead.

In the namespaces tier there is nothing to find (the kernel removes processes and files with the namespace).
"""

from __future__ import annotations

import logging
import os
import re
import signal
import stat
import tempfile

from wmrl_envs.execution.process.box.tiers import FIRST_USER, remove_tree, start_time

log = logging.getLogger(__name__)

#: Our temporary folders, with pid and start time of the owner; a random ending, which may be digits, is set apart.
OWNED_FOLDER = re.compile(r"wmrl-(?:run|probe|docker)-(\d+)-(\d+)(?:-.*)?$")


def reap(folder: str | None = None) -> int:
    """Clean up after dead supervisors in `folder` (default: the temporary folder); how many there were."""
    reaped = 0
    for entry in os.scandir(folder or tempfile.gettempdir()):
        match = OWNED_FOLDER.match(entry.name)
        if not match:
            continue
        owner, started = int(match[1]), int(match[2])
        try:
            info = entry.stat(follow_symlinks=False)
            if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or start_time(owner) == started:
                continue
        except OSError:  # its owner is just removing it
            continue
        log.warning("cleaning up after the dead process %d: %s", owner, entry.path)
        _kill_processes(entry.path, FIRST_USER + owner)
        remove_tree(entry.path)
        reaped += 1
    return reaped


def _kill_processes(folder: str, user: int) -> None:
    """Kill what still runs for a dead supervisor: by its user (when we are root), or by its working directory."""
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            mine = os.stat(f"/proc/{name}").st_uid == user
            if mine or os.readlink(f"/proc/{name}/cwd").startswith(folder + "/"):
                os.kill(int(name), signal.SIGKILL)
        except OSError:
            continue
