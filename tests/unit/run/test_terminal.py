"""Text of programs, tasks and errors is shown, not obeyed, wherever it is printed."""

import io
import logging

import pytest
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from wmrl_envs.errors import InvalidInput
from wmrl_envs.text import visible
from wmrl_train import cli
from wmrl_train.run.progress import Progress
from wmrl_train.run.terminal import Terminal, VisibleFormatter

BAD = "x = 1 # \x1b]0;title\x07\x1b[2J \x9b31m \u202e\u200b \u2028 \ud800 end"


def harmless(text):
    return not any(c in text for c in ("\x1b]", "\x1b[2J", "\x9b", "\x07", "\u202e", "\u200b", "\u2028", "\ud800"))


def test_newline_tab_and_letters_of_all_scripts_stay():
    assert visible("a\n\tß 日本 \u00a0é") == "a\n\tß 日本 \u00a0é"
    assert visible(5) == "5"
    assert harmless(visible(BAD))
    assert r"\x1b]0;title\x07" in visible(BAD)
    assert "\r" not in visible("over\rwritten")


def test_a_table_of_the_terminal_shows_control_characters():
    out = io.StringIO()
    table = Table(title=escape(BAD))
    table.add_column("program")
    table.add_row(escape(BAD))
    Terminal(file=out, width=300, force_terminal=True).print(table, BAD, markup=False)
    assert harmless(out.getvalue())
    assert out.getvalue().count("end") == 3
    assert "\x1b[" in out.getvalue()  # its own styles


def test_the_live_display_shows_control_characters_whatever_console_it_has():
    out = io.StringIO()
    with Progress(3, f"name {BAD}", Console(file=out, force_terminal=True, width=200)) as progress:
        progress.samples([{"code": BAD, "task": BAD, "reward": 0.1, "source": "e", "status": "ok"}])
        progress.note(BAD)
    ours = ("\x1b[2J", "\x1b]0", "\x1b]52", "\x9b", "\u202e", "\ud800")
    assert not any(sequence in out.getvalue() for sequence in ours)


def test_errors_and_warnings_show_control_characters(capsys):
    with pytest.raises(SystemExit):
        cli._refuse(InvalidInput(BAD))
    assert harmless(capsys.readouterr().err)
    record = logging.LogRecord("x", logging.WARNING, "f", 1, "warned: %s", (BAD,), None)
    assert harmless(VisibleFormatter("%(message)s").format(record))
