"""The two theorems on a problem small enough to know the truth: `python benchmarks/theory.py` writes docs/theory.md.

A softmax policy over 24 solutions of 6 tasks, GRPO with 8 groups of 8 a step, 1 of them executed. The world model obeys
Equation 3: r_hat = r + B (phi(r) - r) + sigma xi with phi(r) = 0.3 + 0.5 r^1.5, clipped to [0, 1]. The corrections are
the library's (`Corrector`), with the paper's constants. Four studies, all seeds at once in numpy:

* floor: the gap to the optimum after a fixed number of steps against B and sigma, for every way to use the world model;
* bias: the error of the fitted map against the number of pairs (Lemma 11 says 1 / sqrt), and the gap against T;
* variance: of one fused gradient against the harmonic bound (Lemma 12), with the rho that is estimated;
* hacking: one bad solution of each task over-scored by 0.6 and more, and how long the audit takes to notice.
"""

from __future__ import annotations

import argparse
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from wmrl_envs.correction import Corrector, fusion_weights, recalibrate

TASKS, SOLUTIONS, GROUPS, MEMBERS = 6, 24, 8, 8
DOCS = Path(__file__).resolve().parent.parent / "docs"


def distort(true: np.ndarray, bias: float) -> np.ndarray:
    """R + B (phi(r) - r)."""
    return true + bias * (0.3 + 0.5 * true**1.5 - true)


# -- the problem, for all seeds at once ------------------------------------------------------------------------------
@dataclass(frozen=True)
class Setting:
    """A world model: size of its bias, of its noise, and what it gives the over-scored solution (None: there is none)."""

    bias: float = 1.0
    sigma: float = 0.2
    hacked: float | None = None


@dataclass(frozen=True)
class Method:
    """A way to use it. `anchors` of 8 groups executed; `corrector`: arguments of `Corrector`, None: no correction.

    `equal_scale`: the advantages are brought to the mean size those of real execution have, so that a flatter map does
    not also mean a smaller step.
    """

    anchors: int = 1
    corrector: dict[str, Any] | None = None
    equal_scale: bool = False


OFF = {"debias": False, "denoise": False, "audit": False}
METHODS = {
    "real execution": Method(8, OFF),
    "world model only": Method(0, OFF),
    "mixture": Method(1, OFF),
    "debiasing": Method(1, {"denoise": False, "audit": False}),
    "denoising": Method(1, {"debias": False, "audit": False}),
    "both (WMRL)": Method(1, {"audit": False}),
    "both, regression map": Method(1, {"audit": False, "direction": "regression"}),
    "control variate": Method(1, {"audit": False, "fusion": "cv"}),
    "auto": Method(1, {"audit": False, "fusion": "auto"}),
}
EQUAL = {
    "inverse map, equal scale": Method(1, {"audit": False}, True),
    "regression map, equal scale": Method(1, {"audit": False, "direction": "regression"}, True),
}


@dataclass
class Trace:
    """gap: (steps, seeds) to the best policy. alarm: step of the audit's first alarm, NaN if none. hacked: final mass there."""

    gap: np.ndarray
    alarm: np.ndarray
    hacked: np.ndarray
    optimum: float


def train(setting: Setting, method: Method, steps: int, seeds: int, rate: float, hack_from: int = 0) -> Trace:
    """GRPO by gradient ascent. `hack_from`: step from which the over-scored solution is over-scored."""
    rng = np.random.default_rng(0)
    true = rng.random((seeds, TASKS, SOLUTIONS)) ** 2
    if setting.hacked is not None:
        true[:, :, 0] = 0.05
    seen = distort(true, setting.bias)
    logits = np.zeros((seeds, TASKS, SOLUTIONS))
    correctors = [Corrector(**(OFF if method.corrector is None else method.corrector)) for _ in range(seeds)]
    gaps, alarm, best = np.zeros((steps, seeds)), np.full(seeds, np.nan), true.max(2).mean(1)
    row = np.arange(seeds)[:, None]
    scale = 0.0
    for step in range(steps):
        if setting.hacked is not None and step == hack_from:
            seen[:, :, 0] = setting.hacked
        policy = np.exp(logits - logits.max(2, keepdims=True))
        policy /= policy.sum(2, keepdims=True)
        task = rng.integers(TASKS, size=(seeds, GROUPS))
        cumulative = policy.cumsum(2)[row, task]  # (seeds, groups, solutions)
        draws = (rng.random((seeds, GROUPS, MEMBERS, 1)) > cumulative[:, :, None, :]).sum(3).clip(0, SOLUTIONS - 1)
        real = true[row[:, :, None], task[:, :, None], draws]
        noise = setting.sigma * rng.normal(size=real.shape)
        predicted = np.clip(seen[row[:, :, None], task[:, :, None], draws] + noise, 0, 1)
        coefficients = np.zeros_like(real)
        for s, corrector in enumerate(correctors):
            mask = np.zeros(GROUPS, dtype=bool)
            mask[rng.choice(GROUPS, method.anchors, replace=False)] = True
            coefficients[s] = corrector.advantages(predicted[s], real[s], mask)
            if method.anchors and corrector.enabled:
                corrector.observe(predicted[s][mask], real[s][mask], group=step * GROUPS + np.flatnonzero(mask))
                if corrector.audit is not None and corrector.audit.alarm and np.isnan(alarm[s]) and step >= hack_from:
                    alarm[s] = step
        if method.equal_scale:
            own = np.abs(coefficients).mean()
            wanted = np.abs(real - real.mean(2, keepdims=True)).mean() / GROUPS
            scale = own / wanted if step == 0 else 0.95 * scale + 0.05 * own / wanted
            coefficients /= scale
        pull = np.zeros_like(logits)  # sum of C over the draws of each solution, then minus the policy's share
        np.add.at(pull, (row[:, :, None], task[:, :, None], draws), coefficients / MEMBERS)
        logits += rate * (pull - policy * pull.sum(2, keepdims=True))
        gaps[step] = best - (policy * true).sum(2).mean(1)
    return Trace(gaps, alarm, policy[:, :, 0].mean(1), float(best.mean()))


def mean_error(values: np.ndarray) -> str:
    """Mean and its standard error over seeds, in thousandths."""
    values = 1000 * np.asarray(values)
    return f"{values.mean():.0f} ± {values.std(ddof=1) / math.sqrt(len(values)):.0f}"


# -- the four studies ------------------------------------------------------------------------------------------------
def floors(steps: int, seeds: int, rate: float) -> tuple[list[list[str]], dict[tuple[str, Setting], Trace]]:
    """Gap after a third of `steps` and after all, by method (rows) and setting (columns)."""
    settings = [Setting(0, 0.05), Setting(0.5, 0.05), Setting(1, 0.05), Setting(1, 0.2), Setting(1, 0.35)]
    rows = [["J* - J, thousandths", *(f"B={s.bias:g} σ={s.sigma:g}" for s in settings)]]
    third = steps // 3
    traces = {}
    for name, method in {**METHODS, **EQUAL}.items():
        cells = []
        for setting in settings:
            traces[name, setting] = trace = train(setting, method, steps, seeds, rate)
            cells.append(f"{mean_error(trace.gap[third])}, {mean_error(trace.gap[-1])}")
        rows.append([name, *cells])
        print(" | ".join(rows[-1]), flush=True)
    return rows, traces


def contraction(seeds: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of pairs, and the mean over seeds of the largest error of the map at a level's own mean prediction."""
    counts = np.array([50, 100, 200, 400, 800, 1600, 3200, 6400])
    levels = np.linspace(0.05, 0.95, 10)
    errors = np.zeros((len(counts), seeds))
    for s in range(seeds):
        rng = np.random.default_rng(s)
        for i, n in enumerate(counts):
            true = rng.choice(levels, size=n)
            predicted = np.clip(distort(true, 1.0) + 0.1 * rng.normal(size=n), 0, 1)
            errors[i, s] = np.abs(recalibrate(predicted, true, distort(levels, 1.0)) - levels).max()
    return counts, errors.mean(1)


def variances(repeats: int = 4000) -> list[list[str]]:
    """Variance of one step's gradient (trace), in units of the real one's with all 8 groups."""
    rows = [
        ["σ", "V_WM / V_E", "estimated rho", "plain mixture", "rho estimated", "rho = V_WM / V_E", "weights ∝ 1/V (Lemma 12)"]
    ]
    rng = np.random.default_rng(0)
    true = rng.random(SOLUTIONS) ** 2
    policy = np.full(SOLUTIONS, 1 / SOLUTIONS)
    draws = rng.choice(SOLUTIONS, size=(repeats, GROUPS, MEMBERS))
    score = np.eye(SOLUTIONS)[draws] - policy

    def group_gradients(rewards: np.ndarray) -> np.ndarray:
        advantage = rewards - rewards.mean(2, keepdims=True)
        return (advantage[..., None] * score).mean(2)  # (repeats, groups, solutions)

    def spread(estimate: np.ndarray) -> float:
        return float(estimate.var(0).sum())

    real = group_gradients(true[draws])
    mask = np.arange(GROUPS) < 1
    for sigma in (0.05, 0.1, 0.2, 0.4):
        predicted = true[draws] + sigma * rng.normal(size=draws.shape)
        wm = group_gradients(predicted)
        v_e, v_wm = spread(real[:, 0]), spread(wm[:, 0])
        corrector = Corrector(score_range=None, debias=False, audit=False)
        for k in range(40):
            corrector.observe(predicted[k, 0], true[draws[k, 0]], group=k)
        mixed = np.where(mask[:, None], real, wm)

        def fused(rho: float, mixed: np.ndarray = mixed, v_e: float = v_e) -> float:
            return spread((fusion_weights(mask, rho)[:, None] * mixed).sum(1)) / (v_e / GROUPS)

        bound = 1 / (1 / v_e + 7 / v_wm) / (v_e / GROUPS)
        rows.append([f"{sigma:g}", f"{v_wm / v_e:.2f}", f"{corrector.rho:.2f}", f"{fused(1.0):.3f}", f"{fused(corrector.rho):.3f}",
                     f"{fused(v_wm / v_e):.3f}", f"{bound:.3f}"])  # fmt: skip
    return rows


def hacking(steps: int, seeds: int, rate: float) -> list[list[str]]:
    """One bad solution a task that the world model gives 0.95 (its true score is 0.05)."""
    rows = [["one solution predicted 0.95, true 0.05", "J, % of the optimum", "policy mass on it, %"]]
    for name in ("real execution", "world model only", "mixture", "debiasing", "both (WMRL)", "control variate", "auto"):
        trace = train(Setting(1.0, 0.1, 0.95), METHODS[name], steps, seeds, rate)
        reached = 100 * (trace.optimum - trace.gap[-1]) / trace.optimum
        rows.append(
            [name, f"{reached.mean():.0f} ± {reached.std(ddof=1) / math.sqrt(seeds):.0f}", f"{100 * trace.hacked.mean():.0f}"]
        )
        print(" | ".join(rows[-1]), flush=True)
    return rows


def alarms(steps: int, seeds: int, rate: float) -> str:
    """Delay of the audit when over-scoring begins midway, and false alarms without it."""
    start = steps // 2
    audited = Method(1, {})
    # A small rate keeps the policy spread out, so that there is still something to be taken in.
    found = train(Setting(1.0, 0.1, 0.95), audited, steps, seeds, rate / 20, hack_from=start)
    quiet = train(Setting(1.0, 0.1), audited, steps, seeds, rate / 20)
    delay = found.alarm - start
    caught = np.isfinite(delay)
    middle = f"median delay {np.median(delay[caught]):.0f} steps" if caught.any() else "no delay to report"
    return (
        f"Over-scoring that begins at step {start}: alarm in {caught.sum()} of {seeds} runs within {steps - start} steps, {middle} "
        f"(one anchor group a step). Without it: {np.isfinite(quiet.alarm).sum()} false alarms in {seeds} runs of {steps} steps."
    )


# -- the page --------------------------------------------------------------------------------------------------------
def table(rows: Sequence[Sequence[str]]) -> str:
    head, *body = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([head, "|" + "---|" * len(rows[0]), *body])


def figures(traces: dict, counts: np.ndarray, errors: np.ndarray, to: Path) -> None:
    """Two small pictures."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    to.mkdir(parents=True, exist_ok=True)
    setting = Setting(1, 0.2)
    figure, axis = plt.subplots(figsize=(6, 3.6), dpi=80)
    for name in ("real execution", "world model only", "mixture", "both (WMRL)", "both, regression map", "control variate"):
        axis.plot(traces[name, setting].gap.mean(1), label=name, lw=1.4)
    axis.set(xlabel="step T", ylabel="J* − J", yscale="log", title="B = 1, σ = 0.2")
    axis.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(to / "theory_gap.png", metadata={"Software": None})
    figure, axis = plt.subplots(figsize=(6, 3.2), dpi=80)
    axis.loglog(counts, errors, "o-", label="largest error of the fitted map at a level")
    axis.loglog(counts, errors[2] * np.sqrt(counts[2] / counts), "--", label="1 / sqrt(pairs)")
    axis.set(xlabel="anchor pairs", ylabel="error")
    axis.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(to / "theory_map.png", metadata={"Software": None})
    plt.close("all")


PAGE = """# The theorems, measured

Written by `python benchmarks/theory.py` ({seeds} seeds, {steps} steps, learning rate {rate:g}; {minutes:.0f} minutes). Problem: {problem}

## The floor against B and sigma (Theorem 3 against Theorem 4)

Gap to the best policy after {third} and after {steps} steps at equal step size, mean ± standard error over seeds, in thousandths
of the score.
The rows "equal scale" divide the advantages by their size relative to real execution, so that a flatter map is not punished
for its smaller step.

{floors}

![gap against T](figures/theory_gap.png)

A note on the floor of Theorem 3. The distortion above is monotone, so the solution that is best in truth is best in the
predictions too, and a policy that may put all its mass on one solution ends there with any B: B costs speed (early steps of
the figure), not a floor, and the bound `O(M^2 B^2)` is not attained. What is left at the end of a run is what a softmax
policy that settled early has lost, whatever graded it. A floor appears where bias and order disagree: last section.

## The bias contracts with the pairs (Lemma 11)

{contraction}

![error of the map](figures/theory_map.png)

## The variance of the fused gradient (Lemma 12)

Trace of the covariance of one step's gradient with 1 of 8 groups executed and no bias, in units of that with all 8 executed.

{variances}

The estimated rho is near 2 at any noise: `c = 1 / eta2_cal` makes it 2 when warm-up ends, and it moves only as the residual
changes afterwards. It is right where V_WM is about twice V_E and costs a few percent where the world model is better than
that; the plain mixture is within about 15 % of the best weight everywhere here, since the variance is flat around it (Remark 8).

## Structured error: what a monotone map cannot see

{hacking}

{alarms}

{reading}
"""


def reading(traces: dict, slope: float) -> str:
    """What agrees with the paper and what does not, in sentences that follow from the numbers of this run."""

    def gap(name: str, bias: float, sigma: float) -> np.ndarray:
        gaps = traces[name, Setting(bias, sigma)].gap
        return gaps[len(gaps) // 3]  # while there is still something to learn: at the end all have nearly arrived

    def compare(text: str, a: str, b: str, bias: float, sigma: float) -> str:
        difference = gap(a, bias, sigma) - gap(b, bias, sigma)
        error = difference.std(ddof=1) / math.sqrt(len(difference))
        verdict = (
            "lower" if difference.mean() < -2 * error else "higher" if difference.mean() > 2 * error else "not distinguishable"
        )
        return f"* {text} (B={bias:g}, σ={sigma:g}): {a} minus {b} is {1000 * difference.mean():.1f} ± {1000 * error:.1f}, {verdict}."

    both, wm, mix = "both (WMRL)", "world model only", "mixture"
    lines = [
        "## Reading",
        "",
        "Paired differences of the gap over seeds after a third of the steps, in thousandths; negative favours the first.",
        "",
    ]
    lines += [compare("Both corrections against the world model alone", both, wm, 1, sigma) for sigma in (0.05, 0.2, 0.35)]
    lines += [compare("Both corrections against the plain mixture", both, mix, 1, sigma) for sigma in (0.05, 0.2, 0.35)]
    lines += [compare("What denoising adds to debiasing", both, "debiasing", 1, sigma) for sigma in (0.05, 0.35)]
    lines += [
        compare("Direction of the map, equal step size", both, "both, regression map", 1, sigma) for sigma in (0.05, 0.35)
    ]
    lines += [compare("Direction of the map, equal gradient scale", *EQUAL, 1, sigma) for sigma in (0.05, 0.35)]
    lines += [compare("Control variate against the paper's rule", "control variate", both, 1, sigma) for sigma in (0.05, 0.35)]
    lines += [f"* The error of the map falls with the pairs to the power {slope:.2f} (Lemma 11: -0.5)."]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="The simulation study of both theorems; writes docs/theory.md.")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rate", type=float, default=10.0, help="step size")
    parser.add_argument("--out", type=Path, default=DOCS, help="folder of theory.md and figures/")
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    start = time.perf_counter()
    floor_rows, traces = floors(args.steps, args.seeds, args.rate)
    counts, errors = contraction(args.seeds)
    slope = float(np.polyfit(np.log(counts), np.log(errors), 1)[0])
    hack_rows = hacking(args.steps, args.seeds, args.rate)
    figures(traces, counts, errors, args.out / "figures")
    problem: Callable[[str], str] = lambda text: " ".join(text.split("\n\n")[1].split())  # noqa: E731
    page = PAGE.format(
        seeds=args.seeds,
        steps=args.steps,
        third=args.steps // 3,
        rate=args.rate,
        problem=problem(__doc__ or ""),
        floors=table(floor_rows),
        contraction=table([["pairs", *map(str, counts)], ["largest error", *(f"{e:.3f}" for e in errors)]]),
        variances=table(variances()),
        hacking=table(hack_rows),
        alarms=alarms(args.steps, args.seeds, args.rate),
        reading=reading(traces, slope),
        minutes=(time.perf_counter() - start) / 60,
    )
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "theory.md").write_text(page, encoding="utf-8")
    print(page)


if __name__ == "__main__":
    main()
