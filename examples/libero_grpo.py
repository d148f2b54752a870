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
from wmrl_envs.correction import Corrector
from wmrl_envs.envs.libero import controllers
from wmrl_train.agents.vla.data.demonstrations import record
from wmrl_train.agents.vla.grpo import VLAGrpoConfig, train_grpo
from wmrl_train.agents.vla.imitate import new_policy, train
from wmrl_train.agents.vla.progress import ProgressModel
from wmrl_train.agents.vla.rollout import rollouts


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
    starts = controllers.near_stove(Path(folder or mkdtemp()) / "starts.npz", range(8), texture_size=64)
    stove = controllers.stove_task()

    def make(**options):
        return gym.make(
            "LIBERO-Long-v0", suite=stove.suite, task=stove.index, init_states=starts, max_steps=40,
            image_size=64, texture_size=64, mesh_faces=5000, **options,
        )  # fmt: skip  # small pictures without the robot: fine for an example, not for numbers to report

    with make(action_chunk=1) as env:
        shown = [record(env, clumsy(i), init_state=i % 8, noise=0.05, seed=i) for i in range(demonstrations)]
    print(f"the script succeeds in {sum(d.success for d in shown)} of {len(shown)} attempts")

    policy = new_policy(shown, vq_steps=200)
    train(policy, shown, steps=100, batch=24)
    progress = ProgressModel("final")
    progress.fit(shown, [d.images for d in shown if not d.success])

    with make(action_chunk=policy.execute_horizon) as env:

        def rate():
            return float(np.mean([t.success for t in rollouts(policy, [env], list(range(8)))]))

        before = rate()
        config = VLAGrpoConfig(steps=steps, groups=groups, n=n, anchors=1, lr=5e-4, epochs=4)
        corrector = Corrector(min_pairs=2 * n, refit_every=n)
        train_grpo(
            policy, [env], config, world_model=progress, corrector=corrector,
            on_step=lambda r: print(f"step {r['step']}: success {r.get('success', 0):.2f}, predicted {r.get('predicted', 0):.2f}"),
        )  # fmt: skip
        after = rate()
    print(f"success of sampled episodes: {before:.2f} before, {after:.2f} after")
    return before, after


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=8)
    main(parser.parse_args().steps)
