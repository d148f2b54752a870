"""Reading what a hostile program left behind."""

from __future__ import annotations

import errno
import os
import stat

NAME = "submission.csv"
_KINDS = {stat.S_IFIFO: "a FIFO", stat.S_IFDIR: "a directory", stat.S_IFSOCK: "a socket", stat.S_IFBLK: "a device",
          stat.S_IFCHR: "a device"}  # fmt: skip


def open_submission(folder: str, limit_bytes: int) -> tuple[int | None, str | None]:
    """A descriptor of the submission in `folder`, or (None, why not); (None, None) if there is none.

    Call it when the program is dead. Never blocks, never follows a link. Nothing is read: a sparse file counts by its length.
    """
    try:
        directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None, None
    try:
        file = os.open(NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, dir_fd=directory)
    except FileNotFoundError:
        return None, None
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None, "is a symbolic link, expected a regular file"
        return None, f"cannot be opened ({os.strerror(error.errno or 0)}), expected a regular file"
    finally:
        os.close(directory)
    problem = _problem(os.fstat(file), limit_bytes)
    if problem:
        os.close(file)
        return None, problem
    return file, None


def _problem(info: os.stat_result, limit_bytes: int) -> str | None:
    if not stat.S_ISREG(info.st_mode):
        return f"is {_KINDS.get(stat.S_IFMT(info.st_mode), 'not a file')}, expected a regular file"
    if info.st_nlink != 1:
        return f"has {info.st_nlink} names (hard links), expected one"
    if info.st_size > limit_bytes:
        return f"is {info.st_size / 2**20:.1f} MiB, the limit is {limit_bytes / 2**20:g} MiB"
    return None
