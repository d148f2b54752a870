"""Runs one program as `__main__`: in a fresh interpreter (this file is then the script) or in a forked one.

The program's traceback looks as if it had been started by itself: its own line numbers, no frame of ours.
"""

import atexit
import gc
import io
import linecache
import os
import sys
import threading
import traceback
import types

NAME = "/work/solution.py"  # what a traceback calls the program, in every tier
PRELUDE_NAME = "<scaffold>"


def run_program(code, prelude, file, data_dir, submission_path):
    """Execute `prelude`, then `code` in the same namespace; returns the exit status. Never raises."""
    sys.stdin = open(os.devnull)
    # Lines reach the caller as they are printed, so that a killed program's output is not lost.
    sys.stdout = io.TextIOWrapper(open(1, "wb", closefd=False), "utf-8", "backslashreplace", line_buffering=True)
    sys.stderr = io.TextIOWrapper(open(2, "wb", closefd=False), "utf-8", "backslashreplace", line_buffering=True)
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    sys.argv[:] = [file]
    sys.path.insert(0, os.path.dirname(file))
    main = types.ModuleType("__main__")
    main.__file__ = file
    main.__builtins__ = sys.modules["builtins"]
    main.DATA_DIR, main.SUBMISSION_PATH = data_dir, submission_path
    sys.modules["__main__"] = main
    # The name need not exist here, so tracebacks get their source lines from this.
    linecache.cache[NAME] = (len(code), None, code.splitlines(keepends=True), NAME)
    try:
        if prelude:
            exec(compile(prelude, PRELUDE_NAME, "exec", dont_inherit=True), main.__dict__)
        exec(compile(code, NAME, "exec", dont_inherit=True), main.__dict__)
    except SystemExit as stop:
        return _exit_status(stop.code)
    except BaseException as error:
        _show(error)
        return 1
    return 0


def _exit_status(code):
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def _show(error):
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == _show.__code__.co_filename:
        trace = trace.tb_next
    error.__traceback__ = trace
    try:
        if sys.excepthook is not sys.__excepthook__:
            sys.excepthook(type(error), error, trace)
        else:
            traceback.print_exception(type(error), error, trace)
    except BaseException:
        os.write(2, f"{type(error).__name__}\n".encode())


def finish(status):
    """What the interpreter does at its end, without taking apart the modules a forked process shares."""
    try:
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.modules["__main__"].__dict__.clear()
        gc.collect()
        for thing in gc.get_objects():  # files nobody closed: their buffers are written at a normal end, too
            if isinstance(thing, (io.TextIOWrapper, io.BufferedWriter)) and not thing.closed:
                try:
                    thing.flush()
                except (OSError, ValueError):
                    pass
    except BaseException as error:
        _show(error)
        status = status or 1
    finally:
        os._exit(status)


def _cold():
    folder, file, data_dir, submission_path, ready = sys.argv[1:6]
    with open(file, encoding="utf-8", newline="") as f:
        code = f.read()
    prelude = ""
    if os.path.exists(os.path.join(folder, "prelude.py")):
        with open(os.path.join(folder, "prelude.py"), encoding="utf-8", newline="") as f:
            prelude = f.read()
    del sys.path[0]  # this file's folder
    os.write(int(ready), b"r")
    os.close(int(ready))
    sys.exit(run_program(code, prelude, file, data_dir, submission_path))


if __name__ == "__main__":
    _cold()
