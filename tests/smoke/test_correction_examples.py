"""The examples of the correction and the wrappers run, and say what the library says."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from wmrl_envs.correction import FusionWeight, Recalibrator

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def load(name, folder=EXAMPLES):
    spec = importlib.util.spec_from_file_location(f"example_{name}", folder / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def minimal():
    return load("wmrl_minimal")


def test_wmrl_minimal_is_one_readable_file():
    lines = (EXAMPLES / "wmrl_minimal.py").read_text().splitlines()
    assert len(lines) <= 300
    assert not any("import wmrl" in line for line in lines)


def test_wmrl_minimal_fits_the_librarys_map(minimal):
    rng = np.random.default_rng(0)
    world = minimal.World(rng)
    ours, theirs = minimal.Debias(), Recalibrator(minimal.MIN_PAIRS, minimal.REFIT_EVERY, levels=minimal.LEVELS)
    for _ in range(40):
        task = int(rng.integers(minimal.TASKS))
        solutions = rng.integers(1, minimal.SOLUTIONS, size=minimal.N)
        predicted, true = world.predict(task, solutions), world.execute(task, solutions)
        ours.add(predicted, true)
        theirs.update(predicted, true)
        assert ours(predicted) == pytest.approx(theirs.transform(predicted), abs=1e-9)
    assert theirs.n_fits > 3


def test_wmrl_minimal_weighs_anchors_as_the_library_does(minimal):
    rng = np.random.default_rng(0)
    ours, theirs = minimal.Denoise(), FusionWeight(min_pairs=minimal.MIN_PAIRS)
    for group in range(100):
        residual, true = (0.1 + 0.001 * group) * rng.normal(size=minimal.N), rng.random(minimal.N)
        ours.add(residual, true)
        theirs.update(residual, true, group=group)
        if (group + 1) * minimal.N == minimal.MIN_PAIRS:
            ours.eta2_cal = ours.eta2
        assert ours.rho == pytest.approx(theirs.rho)


def test_wmrl_minimal_learns_with_an_eighth_of_the_executions(minimal):
    names = ("real execution only", "plain mixture", "WMRL")
    runs = {name: minimal.train(minimal.VARIANTS[name], 200, 8.0, seed=0) for name in names}
    assert runs["WMRL"][1] == runs["real execution only"][1] / 8
    final = {name: history[-1] for name, (history, _) in runs.items()}
    assert final["WMRL"] > 0.8
    assert final["WMRL"] > final["plain mixture"] + 0.2  # which the over-scored solution has taken in


def test_surrogate_in_your_loop_runs():
    pytest.importorskip("torch")
    example = load("surrogate_in_your_loop")
    out = example.train(
        example.Args(updates=2, num_envs=8, num_steps=16, first_steps=300, max_episode_steps=30, model_steps=20)
    )
    assert out["imagined_steps"] > 2 * (out["real_steps"] - 300)
    assert 5 < out["return"] <= 30


def test_cartpole_sb3_runs():
    pytest.importorskip("stable_baselines3")
    example = load("cartpole_sb3")
    model, real_steps = example.anchored(steps=512, envs=4, fraction=0.125, first_steps=300, seed=0, model_steps=20)
    assert 300 < real_steps < 300 + 512 / 2
    assert example.plain(200, 4, 0).num_timesteps == 200
    assert example.real_return(model, episodes=1) > 5


def test_the_theory_benchmark_measures_what_it_says():
    theory = load("theory", EXAMPLES.parent / "benchmarks")
    setting = theory.Setting(1.0, 0.05)
    gaps = {
        name: theory.train(setting, theory.METHODS[name], 60, 2, 10.0).gap for name in ("real execution", "world model only")
    }
    assert gaps["real execution"][-1].mean() < 0.8 * gaps["real execution"][0].mean()
    assert gaps["real execution"][-1].mean() < gaps["world model only"][-1].mean()
    rows = theory.variances(repeats=400)
    for row in rows[1:]:
        # No fixed weight beats the harmonic bound, and the ideal rho reaches it (within Monte Carlo error).
        assert float(row[5]) == pytest.approx(float(row[6]), rel=0.1)


def test_the_vector_benchmark_measures_refits_and_insertions():
    vector = load("vector", EXAMPLES.parent / "benchmarks")
    assert set(vector.refits(2000)) == {"refit, inverse", "refit, regression", "refit, two-stage"}
    assert vector.step_seconds(vector.AnchoredVecEnv([vector.Idle] * 4, vector.Free(), max_episode_steps=5), 12) > 0
