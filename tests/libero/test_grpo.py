"""GRPO of a small policy on the real simulator: one step, from start states within reach."""

import numpy as np
import pytest
import torch

from wmrl_envs.envs.libero import controllers

from .conftest import SMALL

pytestmark = pytest.mark.libero


@pytest.fixture
def policy():
    """Untrained, with a quantizer of turning and not turning the knob."""
    from wmrl_train.agents.vla.data.record import Demonstration
    from wmrl_train.agents.vla.imitate import new_policy
    from wmrl_train.agents.vla.model import small_config

    yaw = np.repeat([-1.0, 0.0, 1.0, 0.0], 8)
    actions = np.zeros((len(yaw), 7), np.float32)
    actions[:, 5], actions[:, 6] = yaw, 1.0
    pictures = np.zeros((len(yaw), 64, 64, 3), np.uint8)
    turning = Demonstration("turn on the stove", actions, np.zeros((len(yaw), 9), np.float32), pictures)
    return new_policy([turning], small_config(groups=2, codes=16), vq_steps=200)


def trainer(folder, policy, name, *overrides):
    """Of the stove task, from a start within reach, with one simulator."""
    from wmrl_train.config import load_config
    from wmrl_train.run.rundir import RunDirectory
    from wmrl_train.training.build import build
    from wmrl_train.training.trainer import Trainer

    starts, task = folder / "near_stove.npz", controllers.stove_task()
    if not starts.is_file():
        controllers.near_stove(starts)
        policy.save(folder / "start")
    small = {name: value for name, value in SMALL.items() if name != "image_size"}  # the policy's own
    config = load_config("libero", [
        f"run.dir={folder}", f"run.name={name}", f"policy.model={folder / 'start'}", "policy.device=cpu", "run.threads=1",
        f"libero.suite={task.suite}", f"libero.task={task.index}", f"libero.init_states={starts}", "libero.max_steps=16",
        f"libero.options={small}", "libero.reward=null", "libero.simulators=1", "rollout.groups=1", "rollout.group_size=3", "optim.lr=1e-3", *overrides,
    ])  # fmt: skip
    run = RunDirectory(config.run_dir)
    run.acquire()
    return Trainer(config, build(config), run)


def test_a_step_is_paid_what_the_simulator_says_and_moves_the_policy(tmp_path, policy):
    work = trainer(tmp_path, policy, "one", "train.steps=1", "eval.k=1")
    before = [p.clone() for p in work.parts.model.model.parameters()]
    result = work.run()
    work.close()
    (record,) = [r for r in work.run_dir.read("metrics.jsonl") if "eval" not in r]
    assert record["groups/dropped"] == 0
    assert record["rollout/steps"] <= 16
    assert record["ledger/execution_s"] > 0
    moved = any(not torch.equal(a, b) for a, b in zip(before, work.parts.model.model.parameters(), strict=True))
    assert moved == (record["groups/zero_range"] < 1)
    assert result["before"]["train"]["failed"] == 0


def test_a_run_on_the_simulator_goes_on_bit_by_bit(tmp_path, policy):
    from wmrl_train.run import checkpoint

    steps = ("train.steps=2", "train.save_every=1", "eval.k=0", "rollout.group_size=2", "libero.max_steps=8")
    whole = trainer(tmp_path, policy, "whole", *steps)
    whole.run()
    whole.close()
    cut = trainer(tmp_path, policy, "cut", *steps)
    cut._train_step()
    cut.save()
    cut.close()
    cut.run_dir.release()
    again = trainer(tmp_path, policy, "cut", *steps)
    again.load(checkpoint.latest(again.run_dir.checkpoints))
    again.run()
    again.close()
    one, two = ([[row["ids"] for row in r["rows"]] for r in work.run_dir.read("rollouts.jsonl")] for work in (whole, again))
    assert one == two
    for a, b in zip(whole.parts.model.model.parameters(), again.parts.model.model.parameters(), strict=True):
        assert torch.equal(a, b)
