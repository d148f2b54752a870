import copy
import errno
import json
import os
import random
import subprocess
import sys

import numpy as np
import pytest
import torch

from wmrl_envs.errors import InvalidInput
from wmrl_train.run import checkpoint as ck
from wmrl_train.run import rundir
from wmrl_train.run.rundir import LogError, RunDirectory


def save(directory, tiny, step=1, keep=2, state=None, model=None):
    return ck.save(
        directory,
        step,
        model=model or tiny[0],
        tokenizer=tiny[1],
        optimizer={"a": torch.arange(3.0)},
        state=state or {},
        keep=keep,
    )


def test_weights_optimizer_state_and_generators_come_back_exactly(tiny, tmp_path):
    model = copy.deepcopy(tiny[0])
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p))
    state = {
        "array": np.random.rand(3, 2),
        "float": 0.1 + 0.2,
        "nan": float("nan"),
        "keys": {1: "a", "b": (1, 2)},
        "none": None,
        "n": np.int64(4),
    }
    save(tmp_path, tiny, state=state, model=model)
    expected = (random.random(), np.random.rand(), torch.rand(1).item())
    loaded = ck.latest(tmp_path)
    other = copy.deepcopy(tiny[0])
    ck.load_weights(loaded, other)
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), other.state_dict().values(), strict=True))
    assert torch.equal(ck.load_optimizer(loaded)["a"], torch.arange(3.0))
    assert (random.random(), np.random.rand(), torch.rand(1).item()) == expected
    np.testing.assert_array_equal(loaded.state["array"], state["array"])
    assert loaded.state["float"] == state["float"]
    assert loaded.state["keys"] == {1: "a", "b": [1, 2]}
    assert np.isnan(loaded.state["nan"])


def test_only_the_newest_are_kept(tiny, tmp_path):
    for step in (1, 2, 3, 10):
        save(tmp_path, tiny, step=step)
    assert [p.name for p in ck.checkpoints(tmp_path)] == ["step-000003", "step-000010"]
    assert ck.latest(tmp_path).step == 10
    save(tmp_path, tiny, step=10)  # again, after an interruption
    assert ck.latest(tmp_path).step == 10


@pytest.mark.parametrize("when", ["weights", "optimizer", "state"])
def test_a_full_disk_leaves_the_previous_checkpoint(tiny, tmp_path, monkeypatch, when):
    save(tmp_path, tiny, step=1)

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    model = tiny[0]
    if when == "weights":
        model = copy.deepcopy(tiny[0])
        model.save_pretrained = full
    elif when == "optimizer":
        monkeypatch.setattr(torch, "save", full)
    else:
        monkeypatch.setattr(ck.json, "dumps", full)
    with pytest.raises(ck.CheckpointError, match=r"No space left.*step-000001, is intact"):
        save(tmp_path, tiny, step=2, model=model)
    assert os.listdir(tmp_path) == ["step-000001"]
    monkeypatch.undo()
    assert ck.latest(tmp_path).step == 1


def test_another_format_is_refused_with_both_versions(tiny, tmp_path):
    path = save(tmp_path, tiny)
    envelope = json.loads((path / "state.json").read_text())
    (path / "state.json").write_text(json.dumps(envelope | {"format": 99, "wmrl": "7.0"}))
    with pytest.raises(InvalidInput, match=r"wmrl 7\.0 in checkpoint format 99"):
        ck.latest(tmp_path)


def test_a_damaged_checkpoint_falls_back_to_the_one_before(tiny, tmp_path):
    save(tmp_path, tiny, step=1)
    path = save(tmp_path, tiny, step=2)
    (path / "state.json").write_text("{")
    assert ck.latest(tmp_path).step == 1
    (tmp_path / "step-000001" / "optimizer.pt").unlink()
    with pytest.raises(InvalidInput, match=r"Every checkpoint.*damaged.*optimizer.pt is missing"):
        ck.latest(tmp_path)
    with pytest.raises(InvalidInput, match="No checkpoint in"):
        ck.latest(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["optimizer.pt", "policy/model.safetensors", "state.json"])
@pytest.mark.parametrize("damage", ["cut", "flip"])
def test_damage_anywhere_falls_back_to_the_one_before(tiny, tmp_path, name, damage):
    save(tmp_path, tiny, step=1)
    file = save(tmp_path, tiny, step=2) / name
    content = bytearray(file.read_bytes())
    if damage == "cut":
        del content[len(content) // 2 :]
    else:
        content[-9] ^= 1
    file.write_bytes(bytes(content))
    assert ck.latest(tmp_path).step == 1


def test_a_checkpoint_of_another_model_is_refused(tiny, tmp_path):
    save(tmp_path, tiny)
    other = torch.nn.Linear(2, 2)
    with pytest.raises(InvalidInput, match="another model"):
        ck.load_weights(ck.latest(tmp_path), other)


def test_run_directory_in_use_by_another_process(tmp_path):
    code = f"from wmrl_train.run.rundir import LogError, RunDirectory as R; r = R({str(tmp_path / 'r')!r}); r.acquire(); print('held', flush=True); input()"
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdout.readline() == b"held\n"
    with pytest.raises(InvalidInput, match="in use by another process"):
        RunDirectory(tmp_path / "r").acquire()
    other.kill()
    other.wait()
    run = RunDirectory(tmp_path / "r")
    run.acquire()  # a killed process holds nothing
    run.release()


def test_no_permission_and_no_space_are_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="cannot be written"):
        RunDirectory(tmp_path / "file" / "run").acquire()
    run = RunDirectory(tmp_path / "r")
    with pytest.raises(InvalidInput, match="MiB are free"):
        run.acquire(min_free_disk_mb=10**9)
    run.acquire()  # the lock was given back
    run.release()


def test_logs_are_cut_back_and_a_torn_line_is_ignored(tmp_path):
    run = RunDirectory(tmp_path / "r")
    run.acquire()
    run.append("metrics.jsonl", {"step": 1, "x": np.float64(0.5), "y": [float("nan"), np.int64(3)]})
    sizes = run.sizes()
    run.append("metrics.jsonl", {"step": 2})
    run.append("anchors.jsonl", {"step": 2})
    run.truncate(sizes)
    assert list(run.read("metrics.jsonl")) == [{"step": 1, "x": 0.5, "y": [None, 3]}]
    assert list(run.read("anchors.jsonl")) == []
    with (tmp_path / "r" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2')
    assert list(run.read("metrics.jsonl")) == [{"step": 1, "x": 0.5, "y": [None, 3]}]
    run.release()


def test_an_earlier_run_is_set_aside_not_deleted(tmp_path):
    for expected in ("demo.1", "demo.2"):
        run = RunDirectory(tmp_path / "demo")
        run.acquire()
        run.config_file.write_text("")
        run.release()
        assert run.set_aside().name == expected
    assert RunDirectory(tmp_path / "demo").set_aside() is None


def test_a_full_disk_under_a_log_is_one_sentence(tmp_path, monkeypatch):
    run = RunDirectory(tmp_path / "r")
    run.acquire()
    monkeypatch.setattr(rundir, "_opened", lambda path, flags: os.open("/dev/full", os.O_WRONLY))
    with pytest.raises(LogError, match="make room and go on with --resume"):
        run.append("metrics.jsonl", {"step": 1})
    run.release()
