import io
import re
import sys
import types

import pytest
from rich.console import Console

from wmrl_envs.errors import MissingExtra
from wmrl_train.config import load_config
from wmrl_train.episodes.lanes import Busy, Lane
from wmrl_train.run.progress import Progress, columns, final_table, line
from wmrl_train.run.tracking import Trackers

STEP = {
    "reward/mean": 0.5, "reward/executed": 0.4, "reward/predicted": 0.6, "reward/calibrated": 0.45, "groups/anchors": 1,
    "anchor/n_pairs": 64, "anchor/rho": 2.5, "anchor/eta2": 1.25, "time/generate_s": 1.0, "time/predict_s": 0.2, "time/execute_s": 3.0,
    "time/learn_s": 0.7, "time/step_s": 4.0,
}  # fmt: skip


def test_outside_a_terminal_a_step_is_one_plain_line():
    out = io.StringIO()
    with Progress(40, "demo", Console(file=out, width=60)) as progress:
        progress.step(3, STEP)
    assert out.getvalue() == line(3, 40, STEP) + "\n"
    for text in (
        "step 3/40",
        "executed 40.0 %",
        "calibrated 45.0 %",
        "anchors 1",
        "pairs 64",
        "rho 2.50",
        "eta2 1.25",
        "execute 3.0",
    ):
        assert text in out.getvalue()


def test_in_a_terminal_a_table_is_live():
    out = io.StringIO()
    with Progress(40, "demo", Console(file=out, force_terminal=True, width=200)) as progress:
        for step in range(1, 12):
            progress.step(step, STEP)
        progress.samples([{"task": "t[0]", "reward": 0.5, "source": "executed", "status": "ok", "code": "print('[red]')"}])
        progress.evaluation(11, {"train": {"avg": 0.5, "best": 0.75, "valid": 1.0}})
        progress.evaluation(11, {"train": {"avg": None, "best": None, "valid": None}})
    assert "rho" in out.getvalue()
    assert "[red]" in out.getvalue().replace("\x1b", "")


def test_final_table_states_gain_and_cost():
    out = io.StringIO()
    rows = [{"train": {"avg": a, "low": a - 0.1, "high": a + 0.1, "best": 1.0, "valid": 0.5, "tasks": 12}} for a in (0.25, 0.5)]
    ledger = {"executions_paid": 10, "execution_s": 20.0, "executions_avoided": 70, "executions_cached": 3, "tokens": 5, "dropped_groups": 1,
              "generate_cpu_s": 1.0, "predict_cpu_s": 2.0, "execute_cpu_s": 3.0, "learn_cpu_s": 4.0}  # fmt: skip
    Console(file=out, width=160).print(final_table(rows[0], rows[1], ledger, 8))
    for text in ("avg@8", "25.0 [15.0, 35.0]", "50.0 [40.0, 60.0]", "+25.0", "about 140 s at 2.00 s each"):
        assert text in out.getvalue()


class Screen:
    """A test double of a terminal: text, line ends, carriage returns, and the two escapes by which a live display erases itself."""

    def __init__(self, written):
        self.lines, row = [""], 0
        for part in re.split(r"(\x1b\[[0-9;?]*[a-zA-Z]|\n|\r)", written):
            if part == "\n":
                row += 1
                self.lines += [""] * (row + 1 - len(self.lines))
            elif part == "\x1b[1A":
                row -= 1
            elif part == "\x1b[2K":
                self.lines[row] = ""
            elif part and not part.startswith("\x1b") and part != "\r":
                self.lines[row] += part


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (40, ["step", "reward %", "executed"]),
        (80, ["step", "reward %", "executed", "calibrated", "anchors", "pairs", "step s"]),
        (200, []),
    ],
)
def test_a_narrow_terminal_shows_fewer_columns_and_whole_numbers(width, shown):
    out = io.StringIO()
    with Progress(60, "laptop", Console(file=out, force_terminal=True, width=width)) as progress:
        for step in range(1, 4):
            progress.step(step, STEP | {"anchor/n_pairs": 123456})
        progress.episode(3, 96)
    screen = Screen(out.getvalue())
    assert max(map(len, screen.lines)) <= width
    heads = [column.head for column in columns(width)]
    assert heads == (shown or [column.head for column in columns(10**4)])
    text = "\n".join(screen.lines)
    assert text.count("3/60") == 1, "one bar stays behind, also after Ctrl-C"
    assert "…" not in text
    assert "50.0" in text
    assert "evaluating: 3 of 96 episodes" in text


def test_outside_a_terminal_an_evaluation_says_every_quarter_how_far_it_is():
    out = io.StringIO()
    with Progress(60, "laptop", Console(file=out, width=60)) as progress:
        for done in range(1, 9):
            progress.episode(done, 8)
    assert out.getvalue().splitlines() == [f"  {done} of 8 episodes evaluated" for done in (2, 4, 6)]


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_final_table_fits_its_terminal(width):
    rows = [{"train": {"avg": a, "low": a - 0.1, "high": a + 0.1, "best": 1.0, "valid": 0.5, "tasks": 12}} for a in (0.25, 0.5)]
    ledger = dict.fromkeys(("executions_paid", "execution_s", "executions_avoided", "executions_cached", "tokens", "dropped_groups",
                            "generate_cpu_s", "predict_cpu_s", "execute_cpu_s", "learn_cpu_s"), 1)  # fmt: skip
    out = io.StringIO()
    Console(file=out, width=width).print(final_table(rows[0], rows[1], ledger, 8, width))
    assert max(map(len, out.getvalue().splitlines())) <= width
    assert "+25.0" in out.getvalue()
    assert "…" not in out.getvalue()
    assert ("[15.0, 35.0]" in out.getvalue()) == (width > 40)


def test_tensorboard_writes_events(tmp_path):
    trackers = Trackers(load_config("laptop", ["tracking.trackers=[tensorboard]"]), tmp_path)
    trackers.log(1, {"reward/mean": 0.5})
    trackers.close()
    assert list((tmp_path / "tensorboard").glob("events*"))


def test_wandb_like_trackers_get_every_value_and_a_broken_one_never_ends_a_run(monkeypatch, tmp_path):
    calls = []

    class Fake(types.ModuleType):  # a test double of the module wandb
        def init(self, **options):
            calls.append(options)

        def log(self, values, step):
            calls.append((step, values))
            if step == 2:
                raise OSError("no network")

        def finish(self):
            calls.append("finish")

    monkeypatch.setitem(sys.modules, "wandb", Fake("wandb"))
    trackers = Trackers(load_config("laptop", ["tracking.trackers=[wandb]", "run.name=mine"]), tmp_path)
    for step in (1, 2, 3):
        trackers.log(step, {"x": 1.0})
    assert (calls[0]["name"], calls[0]["resume"]) == ("mine", "allow")
    assert calls[1:] == [(1, {"x": 1.0}), (2, {"x": 1.0})]


def test_an_absent_tracker_names_its_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "trackio", None)
    with pytest.raises(MissingExtra, match=r"'\.\[trackers\]'"):
        Trackers(load_config("laptop", ["tracking.trackers=[trackio]"]), tmp_path)


def test_lane_clocks_separate_busy_from_work():
    import threading
    import time

    together = Busy()
    lane = Lane("x", 4, together=together)
    all_at_once = threading.Barrier(4)
    lane.map(lambda _: (all_at_once.wait(60), time.sleep(0.05)), range(4))
    lane.charge(1.5)
    taken, union = lane.take(), together.take()
    assert taken.calls == 4
    assert taken.work_s >= 0.2
    assert 0.05 <= taken.busy_s < taken.work_s
    assert 0.05 <= union < taken.work_s
    assert taken.cpu_s == 1.5
    assert lane.take().busy_s == 0


def test_exclusive_waits_for_running_calls():
    import threading
    import time

    lane, order = Lane("x", 2), []
    thread = threading.Thread(target=lambda: lane.run(lambda: (time.sleep(0.1), order.append("call"))))
    thread.start()
    time.sleep(0.03)
    with lane.exclusive():
        order.append("alone")
    thread.join()
    assert order == ["call", "alone"]
