"""`wmrl`: the command line. Subcommands live in `wmrl_train.commands`."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from typing import Annotated, NoReturn

import typer
from rich.markup import escape

from wmrl_envs.errors import InvalidInput, MissingExtra, WmrlError
from wmrl_train.run.terminal import Terminal

_EXTRA_OF = dict.fromkeys(
    ("torch", "transformers", "accelerate", "peft", "safetensors", "gguf", "matplotlib", "jinja2"), "train"
) | dict.fromkeys(("PIL", "pyarrow", "h5py"), "libero")
_COMMANDS = ("train", "evaluate", "tasks", "sandbox", "warm_start", "fidelity", "demos", "vla", "grpo", "robometer", "compare")

_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES)  # a full disk or no permission: also where no file is named

app = typer.Typer(
    name="wmrl",
    help="World Model RL: environments whose expensive step is executed or predicted, and a GRPO trainer that uses both.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        from wmrl_envs import __version__

        typer.echo(f"wmrl {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    pass


for _name in _COMMANDS:
    importlib.import_module(f"wmrl_train.commands.{_name}").register(app)


def main() -> None:
    """Run the command line; a user's error is one sentence and exit status 2, Ctrl-C is 130."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads that spin while they wait take the cores from the sandbox
    try:
        app()
    except WmrlError as error:
        _refuse(error)
    except ModuleNotFoundError as error:  # installed without the extra that this command needs
        if error.name not in _EXTRA_OF:
            raise
        _refuse(MissingExtra(error.name, _EXTRA_OF[error.name], "This command"))
    except OSError as error:
        _refuse(_about_a_file(error))
    except KeyboardInterrupt:
        sys.exit(130)


def _about_a_file(error: OSError) -> WmrlError:
    """An error of the system about a file as a sentence; any other (a socket's, a mistake of ours) is raised again."""
    if error.errno in _DISK:
        return InvalidInput(f"{_named(error)}: {error.strerror}; make room, or choose a folder you may write to.")
    if error.errno is None or error.filename is None:  # urllib's errors have a "filename" (their address) but no number
        raise error
    return InvalidInput(f"{_named(error)}: {error.strerror}; give the path of a file or folder that can be used there.")


def _named(error: OSError) -> str:
    files = [error.filename, error.filename2]  # a rename has two
    return " -> ".join(repr(os.fsdecode(f) if isinstance(f, bytes) else str(f)) for f in files if f is not None) or "a file"


def _refuse(error: WmrlError) -> NoReturn:
    Terminal(stderr=True).print(f"[bold red]error:[/] {escape(str(error))}", markup=True, highlight=False, soft_wrap=True)
    sys.exit(2)


if __name__ == "__main__":
    main()
