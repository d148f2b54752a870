"""World Model RL on a toy problem, in one file: `python examples/wmrl_minimal.py` (numpy and scikit-learn, seconds).

The problem: TASKS tasks, each with SOLUTIONS possible solutions of unknown true score in [0, 1]. Running a solution is
expensive. A world model predicts its score for nothing, but it is

* biased:   what it says is bent (0.3 + 0.5 r^1.5 instead of r), so gaps between solutions shrink unevenly;
* noisy:    it errs anew each time it is asked;
* gullible: one bad solution of each task looks splendid to it (reward hacking waits there).

The policy is a softmax table over solutions. It is trained with GRPO: groups of N solutions of one task, advantage = score
minus the group's mean. Each step executes only ANCHORS of its GROUPS groups for real; these anchors serve twice. Their
pairs (predicted, true) teach a monotone map that debiases all predictions, and their gradients enter with a weight that
rises with the noise of what remains.

How this differs from the paper (arXiv 2608.12564): the policy is a table instead of a language model, one turn instead of
four, plain gradient ascent instead of AdamW with clipping and a KL term, and the numbers below (warm-up of 64 pairs
instead of 200, for a run of seconds). The two corrections are the paper's, equation by equation. What the library adds
(control variates, audit, per-task maps, deferred anchors) is left out; see `wmrl_envs.correction`.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field

import numpy as np
from sklearn.isotonic import isotonic_regression

TASKS, SOLUTIONS = 6, 24
GROUPS, N, ANCHORS = 8, 8, 1  # groups a step, solutions a group, groups executed for real
MIN_PAIRS, REFIT_EVERY, WINDOW, W_MAX, LEVELS = 64, 64, 512, 4.0, 10


# ---------------------------------------------------------------------------------------------------- the world it is in
@dataclass
class World:
    """True scores, and a world model that sees them through a bent, noisy glass."""

    rng: np.random.Generator
    noise: float = 0.1
    true: np.ndarray = field(init=False)  # (TASKS, SOLUTIONS)

    def __post_init__(self) -> None:
        self.true = self.rng.random((TASKS, SOLUTIONS)) ** 2  # good solutions are rare
        self.true[:, 0] = 0.05  # the one that looks splendid
        self.executions = 0

    def execute(self, task: int, solutions: np.ndarray) -> np.ndarray:
        """The expensive truth."""
        self.executions += len(solutions)
        return self.true[task, solutions]

    def predict(self, task: int, solutions: np.ndarray) -> np.ndarray:
        """The free guess: r_hat = phi(r) + xi (Equation 3), and taken in by solution 0."""
        bent = 0.3 + 0.5 * self.true[task, solutions] ** 1.5
        bent = np.where(solutions == 0, 0.95, bent)
        return np.clip(bent + self.noise * self.rng.normal(size=len(solutions)), 0, 1)


# ------------------------------------------------------------------------------------------ correction 1: online debiasing
class Debias:
    """The map f of Equation 4, in the direction Lemma 11 analyses: identity until MIN_PAIRS, then refitted as pairs come."""

    def __init__(self) -> None:
        self.predicted: list[float] = []
        self.true: list[float] = []
        self.fitted_at = 0
        self.vertices: tuple[np.ndarray, np.ndarray] | None = None

    def __call__(self, predicted: np.ndarray) -> np.ndarray:
        if self.vertices is None:
            return predicted
        xs, ys = self.vertices
        out = np.interp(predicted, xs, ys)
        # Beyond the outer vertices the last slope goes on, bent so as to stay in [0, 1]: clipping would lose the order there.
        for end, inner, limit, beyond in ((-1, -2, 1.0, predicted > xs[-1]), (0, 1, 0.0, predicted < xs[0])):
            slope = (ys[end] - ys[inner]) / (xs[end] - xs[inner]) or (ys[-1] - ys[0]) / (xs[-1] - xs[0])
            corner = (limit - ys[end]) / (limit - xs[end]) if xs[end] != limit else 0.0
            out = np.where(beyond, ys[end] + min(slope, corner) * (predicted - xs[end]), out)
        return out

    def add(self, predicted: np.ndarray, true: np.ndarray) -> None:
        self.predicted += predicted.tolist()
        self.true += true.tolist()
        if len(self.true) >= MIN_PAIRS and (self.vertices is None or len(self.true) - self.fitted_at >= REFIT_EVERY):
            self.fit()

    def fit(self) -> None:
        predicted, true = np.array(self.predicted), np.array(self.true)
        level = np.minimum((true * LEVELS).astype(int), LEVELS - 1)
        count = np.bincount(level, minlength=LEVELS)
        held = count > 0
        # 1. Average the predictions of each level of the true score: the noise averages out, the bias stays.
        mean_predicted = np.bincount(level, predicted, LEVELS)[held] / count[held]
        mean_true = np.bincount(level, true, LEVELS)[held] / count[held]
        # 2. Project on non-decreasing sequences: the world model may be wrong, but is taken to be monotone on average.
        monotone = isotonic_regression(mean_predicted, sample_weight=count[held])
        # 3. Invert by linear interpolation: a prediction of that mean gets that score. Levels it pooled share a vertex.
        xs, pool = np.unique(np.round(monotone, 12), return_inverse=True)
        ys = np.bincount(pool, mean_true * count[held]) / np.bincount(pool, count[held])
        if len(xs) > 1:  # else: the predictions say nothing, keep the last map
            self.vertices, self.fitted_at = (xs, ys), len(true)


# --------------------------------------------------------------------------------- correction 2: inverse-variance denoising
class Denoise:
    """rho = V_WM / V_E of Equation 5, estimated as 1 + eta2 / eta2_cal, where eta2 is the residual noise left after f."""

    def __init__(self) -> None:
        self.residuals: list[np.ndarray] = []  # of each anchor group: f(r_hat) - r, by the f from before it was seen
        self.spreads: list[float] = []  # variance of the true scores inside it
        self.eta2_cal: float | None = None

    def add(self, residual: np.ndarray, true: np.ndarray) -> None:
        self.residuals = [*self.residuals, residual][-WINDOW // N :]
        self.spreads = [*self.spreads, float(true.var())][-WINDOW // N :]

    @property
    def eta2(self) -> float:
        return float(np.mean(np.square(self.residuals))) / max(float(np.mean(self.spreads)), 1e-9)

    @property
    def rho(self) -> float:
        return 1.0 if self.eta2_cal is None else float(np.clip(1 + self.eta2 / self.eta2_cal, 1, W_MAX))


# -------------------------------------------------------------------------------------------------------------- training
@dataclass
class Run:
    """What is switched on. The defaults are WMRL; the others are what it is compared with."""

    anchors: int = ANCHORS
    debias: bool = True
    denoise: bool = True


VARIANTS = {
    "real execution only": Run(anchors=GROUPS, debias=False, denoise=False),
    "world model only": Run(anchors=0, debias=False, denoise=False),
    "plain mixture": Run(debias=False, denoise=False),
    "WMRL": Run(),
}


def train(run: Run, steps: int, learning_rate: float, seed: int) -> tuple[list[float], int]:
    """(true score of the policy after each step, averaged over tasks; executions used)."""
    rng = np.random.default_rng(seed)
    world = World(rng)
    logits = np.zeros((TASKS, SOLUTIONS))
    debias, denoise = Debias(), Denoise()
    history = []
    for _ in range(steps):
        # Decide before the rollout, at random, which groups will be executed: the anchors.
        is_anchor = np.zeros(GROUPS, dtype=bool)
        is_anchor[rng.choice(GROUPS, run.anchors, replace=False)] = True
        rho = denoise.rho if run.denoise else 1.0
        weights = np.where(is_anchor, rho, 1.0)
        weights /= weights.sum()  # (rho g_E + g_WM) / (rho |G_E| + |G_WM|), as one weight a group
        gradient = np.zeros_like(logits)
        pairs = []
        for k in range(GROUPS):
            task = int(rng.integers(TASKS))
            policy = softmax(logits[task])
            solutions = rng.choice(SOLUTIONS, size=N, p=policy)
            predicted = world.predict(task, solutions)
            score = debias(predicted) if run.debias else predicted
            if is_anchor[k]:
                true = world.execute(task, solutions)
                pairs.append((predicted, score - true, true))
                score = true  # an anchor is graded by both; the truth is what it learns from
            advantage = score - score.mean()  # no division by the standard deviation: the theory needs linearity
            for solution, a in zip(solutions, advantage, strict=True):
                grad_log_policy = -policy
                grad_log_policy = grad_log_policy + (np.arange(SOLUTIONS) == solution)
                gradient[task] += weights[k] * a * grad_log_policy / N  # Equation 1
        logits += learning_rate * gradient
        # What the anchors teach enters after the update: no pair corrects itself.
        for predicted, residual, true in pairs:
            denoise.add(residual, true)
            debias.add(predicted, true)
        if denoise.eta2_cal is None and debias.vertices is not None:
            denoise.eta2_cal = denoise.eta2  # once, at the end of warm-up; rho is 2 right after
        history.append(float(np.mean([softmax(logits[t]) @ world.true[t] for t in range(TASKS)])))
    return history, world.executions


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max())
    return e / e.sum()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--learning-rate", type=float, default=8.0)
    args = parser.parse_args()
    best = np.mean([World(np.random.default_rng(s)).true.max(axis=1).mean() for s in range(args.seeds)])
    print(f"score of the best solutions: {best:.3f}\n")
    print(f"{'variant':22} {'score':>6}  {'executions':>10}")
    for name, run in VARIANTS.items():
        runs = [train(run, args.steps, args.learning_rate, seed) for seed in range(args.seeds)]
        score = np.mean([history[-1] for history, _ in runs])
        print(f"{name:22} {score:6.3f}  {int(np.mean([n for _, n in runs])):10,}")


if __name__ == "__main__":
    main()
