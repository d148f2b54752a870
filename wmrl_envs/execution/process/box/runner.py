"""Runs one program as `__main__`: in a fresh interpreter (this file is then the script) or in a forked one.

The program's traceback looks as if it had been started by itself: its own line numbers, no frame of ours.
"""

import atexit
import contextlib
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


def held(prelude, data_dir):
    """Execute `prelude` now: a `__main__` for programs to start from, each in a fork of this process."""
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=sys.modules["builtins"], DATA_DIR=data_dir)
    exec(compile(prelude, PRELUDE_NAME, "exec", dont_inherit=True), main.__dict__)
    return main


def prepare(cpu_count):
    """Tell the program, and the workers it spawns, what it may use and where its files are."""
    if cpu_count:
        os.cpu_count = lambda: cpu_count
    from multiprocessing import spawn

    command_line = spawn.get_command_line
    names = 'import builtins as b, os; b.DATA_DIR, b.SUBMISSION_PATH = os.environ["DATA_DIR"], os.environ["SUBMISSION_PATH"]; '

    def get_command_line(**arguments):
        line = command_line(**arguments)
        return [
            names + part if isinstance(part, str) and part.startswith("from multiprocessing.spawn import") else part
            for part in line
        ]

    spawn.get_command_line = get_command_line


def run_program(code, prelude, file, data_dir, submission_path, main=None):
    """Execute `prelude`, then `code` in the same namespace; returns the exit status. Never raises.

    `main`: of `held`, with a prelude executed already; what it knows the data folder by there becomes `data_dir`.
    """
    streams = {"stdin": open(os.devnull)}  # noqa: SIM115
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        # Lines reach the caller as they are printed, so that a killed program's output is not lost.
        raw = open(descriptor, "wb", closefd=False)  # noqa: SIM115
        streams[name] = io.TextIOWrapper(raw, "utf-8", "backslashreplace", line_buffering=True)
    for name, stream in streams.items():
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.argv[:] = [file]
    sys.path.insert(0, os.path.dirname(file))
    if main is None:
        main = types.ModuleType("__main__")
    namespace = main.__dict__
    before = namespace.get("DATA_DIR")
    for name in [
        name for name, value in namespace.items() if before is not None and isinstance(value, str) and value == before
    ]:
        namespace[name] = data_dir
    namespace.update(__file__=file, __builtins__=sys.modules["builtins"], DATA_DIR=data_dir, SUBMISSION_PATH=submission_path)
    sys.modules["__main__"] = main
    # The name need not exist here, so tracebacks get their source lines from this.
    linecache.cache[NAME] = (len(code), None, code.splitlines(keepends=True), NAME)
    try:
        if prelude:
            exec(compile(prelude, PRELUDE_NAME, "exec", dont_inherit=True), namespace)
        exec(compile(code, NAME, "exec", dont_inherit=True), namespace)
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
    sys.stderr.write(f"{code}\n")
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


def finish(status, kept=()):
    """What the interpreter does at its end, without taking apart what a forked process shares: modules,
    and `kept` names of `__main__`.
    """
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        namespace = sys.modules["__main__"].__dict__
        for name in set(namespace).difference(kept):
            del namespace[name]
        gc.collect()
        for stream in (
            sys.__stdout__,
            sys.__stderr__,
            sys.stdout,
            sys.stderr,
        ):  # in this order, as what was printed first is there
            with contextlib.suppress(OSError, ValueError, AttributeError):
                if stream is not None:
                    stream.flush()
        for thing in gc.get_objects():  # files nobody closed: their buffers are written at a normal end, too
            if isinstance(thing, (io.TextIOWrapper, io.BufferedWriter)) and not thing.closed:
                with contextlib.suppress(OSError, ValueError):
                    thing.flush()
    except BaseException as error:
        _show(error)
        status = status or 1
    finally:
        os._exit(status)


def _cold():
    folder, file, data_dir, submission_path, ready, cpu_count = sys.argv[1:7]
    with open(file, encoding="utf-8", newline="") as f:
        code = f.read()
    prelude = ""
    if os.path.exists(os.path.join(folder, "prelude.py")):
        with open(os.path.join(folder, "prelude.py"), encoding="utf-8", newline="") as f:
            prelude = f.read()
    del sys.path[0]  # this file's folder
    os.write(int(ready), b"r")
    os.close(int(ready))
    prepare(int(cpu_count))
    finish(run_program(code, prelude, file, data_dir, submission_path))


if __name__ == "__main__":
    _cold()
