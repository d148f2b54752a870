"""GRPO of a vision-language-action policy in LIBERO, from demonstrations to success rates, on a CPU.

    pip install '.[train,libero]'
    python examples/libero_grpo.py --steps 8

"Turn on the stove" from starts with the fingers closed on the knob. A clumsy script shows the task, a small policy imitates it,
a progress model learns from the same attempts what success looks like, and GRPO takes that model's word for the reward, except
in one anchor group a step, which the simulator pays. `wmrl demos | sft | grpo | eval` are these steps as commands.
"""

import argparse
from pathlib import Path
from tempfile import mkdtemp

import gymnasium as gym
import numpy as np

import wmrl_envs  # noqa: F401  (registers LIBERO-Long-v0)
from wmrl_envs.envs.libero import controllers
from wmrl_train.agents.vla.data.demonstrations import record
from wmrl_train.agents.vla.imitate import new_policy, train
from wmrl_train.agents.vla.progress import ProgressModel
from wmrl_train.config import load_config
from wmrl_train.run.progress import Progress
from wmrl_train.run.rundir import RunDirectory
from wmrl_train.training.build import build
from wmrl_train.training.trainer import Trainer

CHEAP = {"texture_size": 64, "mesh_faces": 5000}  # no robot in the picture: fine for an example, not for numbers to report


def clumsy(seed):
    """A script that turns the knob to and fro at random."""
    rng = np.random.default_rng(seed)

    def script(view):
        while True:
            speed = rng.uniform(-0.5, 0.8)
            for _ in range(8):
                yield np.array([0.0, 0.0, 0.0, 0.0, 0.0, speed, controllers.CLOSE])

    return script


def main(steps=8, demonstrations=12, groups=4, n=4, folder=None):
    """The success rate of sampled episodes before and after."""
    folder = Path(folder or mkdtemp())
    starts = controllers.near_stove(folder / "starts.npz", range(8), texture_size=64)
    stove = controllers.stove_task()

    with gym.make(
        "LIBERO-Long-v0", suite=stove.suite, task=stove.index, init_states=starts, max_steps=40, image_size=64,
        action_chunk=1, **CHEAP,
    ) as env:  # fmt: skip
        shown = [record(env, clumsy(i), init_state=i % 8, noise=0.05, seed=i) for i in range(demonstrations)]
    print(f"the script succeeds in {sum(d.success for d in shown)} of {len(shown)} attempts")

    policy = new_policy(shown, vq_steps=200)
    train(policy, shown, steps=100, batch=24)
    policy.save(folder / "policy")
    progress = ProgressModel("final")
    progress.fit(shown, [d.images for d in shown if not d.success])
    progress.save(folder / "progress.safetensors")

    config = load_config("libero", [  # the file `wmrl train libero` starts from; these are its dotted overrides
        f"run.dir={folder}", "run.name=grpo", f"train.steps={steps}", f"policy.model={folder / 'policy'}", "policy.device=auto",
        f"libero.suite={stove.suite}", f"libero.task={stove.index}", f"libero.init_states={starts}", "libero.max_steps=40",
        f"libero.options={CHEAP}", "libero.simulators=1", f"libero.reward={folder / 'progress.safetensors'}",
        f"rollout.groups={groups}", f"rollout.group_size={n}", f"anchors.fraction={1 / groups}",
        f"correction.min_pairs={2 * n}", f"correction.refit_every={n}", "optim.lr=5e-4", "optim.epochs=4",
        "eval.temperature=1.0",
    ])  # fmt: skip
    run = RunDirectory(config.run_dir)
    run.acquire()
    trainer = Trainer(config, build(config), run, Progress(steps, "libero"))
    try:
        result = trainer.run()
    finally:
        trainer.close()
        run.release()
    before, after = (result[when]["train"]["avg"] for when in ("before", "after"))
    print(f"success of sampled episodes: {before:.2f} before, {after:.2f} after; the run is in {run.path}")
    return before, after


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=8)
    main(parser.parse_args().steps)
