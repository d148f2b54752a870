"""How faithful a world model is: figures from pairs of predicted and executed outcomes. Pure functions on arrays, then
`measure`.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wmrl_envs.errors import InvalidInput
from wmrl_envs.outcome import ExecutionStatus, Outcome

GROUP_SIZE = 8
TIE = 1e-3  # true scores closer than this are no pair to rank
ERROR_LINE = re.compile(r"^(\w+(?:Error|Exception|Exit|Interrupt|Warning)?)(?:: (.*))?$")
WHERE = re.compile(r'File "[^"]*solution\.py", line (\d+)')


@dataclass(frozen=True)
class Pair:
    """One solution, predicted and executed. `fault`: what was planted in it, if known; `origin`: where it comes from."""

    task: str
    category: str
    predicted: Outcome
    true: Outcome
    origin: str = ""
    fault: str | None = None


# ---- figures on arrays ----------------------------------------------------------------------------------------------
def validity_auc(p_valid: np.ndarray, valid: np.ndarray) -> float | None:
    """Area under the ROC curve of P(valid), ties counted half; None if all or none are valid.

    >>> validity_auc(np.array([0.9, 0.8, 0.1]), np.array([True, True, False]))
    1.0
    """
    from sklearn.metrics import roc_auc_score

    if valid.all() or not valid.any():
        return None
    return float(roc_auc_score(valid, p_valid))


def spearman(a: np.ndarray, b: np.ndarray) -> float | None:
    """Rank correlation; None if either side is constant or there are fewer than three values."""
    from scipy.stats import spearmanr

    if len(a) < 3 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    return float(spearmanr(a, b).statistic)


def within_group_spearman(
    predicted: np.ndarray, true: np.ndarray, task: Sequence[str], size: int = GROUP_SIZE, draws: int = 50, seed: int = 0
) -> float | None:
    """Mean rank correlation within random groups of `size` solutions of one task, as the policy gradient sees them.

    Groups whose true scores are all equal carry no gradient and are left out; a group of equal predictions counts 0.
    """
    rng = np.random.default_rng(seed)
    members = defaultdict(list)
    for i, t in enumerate(task):
        members[t].append(i)
    found: list[float] = []
    for _ in range(draws):
        for indices in members.values():
            order = rng.permutation(indices)
            for start in range(0, len(order) - size + 1, size):
                group = order[start : start + size]
                if np.ptp(true[group]) > 0:
                    found.append(spearman(predicted[group], true[group]) or 0.0)
    return float(np.mean(found)) if found else None


def pairwise_accuracy(predicted: np.ndarray, true: np.ndarray, task: Sequence[str]) -> tuple[float | None, int]:
    """Share of pairs of one task whose order is predicted right (equal predictions count half), and the number of pairs."""
    right, n = 0.0, 0
    names = np.asarray(task, dtype=object)
    for t in dict.fromkeys(task):
        p, y = predicted[names == t], true[names == t]
        i, j = np.triu_indices(len(p), 1)
        gap, said = y[i] - y[j], p[i] - p[j]
        counted = np.abs(gap) > TIE
        agreement = np.where(said == 0, 0.5, (np.sign(said) == np.sign(gap)).astype(float))
        right += float(agreement[counted].sum())
        n += int(counted.sum())
    return (right / n if n else None), n


def calibration(predicted: np.ndarray, true: np.ndarray, bins: int = 10) -> tuple[list[dict[str, float]], float | None]:
    """Calibration curve in equal bins of the predicted score, and the expected calibration error of the scores.

    ECE = sum over bins of share * |mean predicted - mean true|.
    """
    if len(predicted) == 0:
        return [], None
    which = np.minimum((predicted * bins).astype(int), bins - 1)
    curve, error = [], 0.0
    for b in range(bins):
        inside = which == b
        if inside.any():
            p, y, n = float(predicted[inside].mean()), float(true[inside].mean()), int(inside.sum())
            curve.append({"predicted": p, "true": y, "n": n})
            error += n / len(predicted) * abs(p - y)
    return curve, error


# ---- feedback -------------------------------------------------------------------------------------------------------
def error_of(feedback: str) -> tuple[str | None, int | None, str]:
    r"""Exception class, line in the program, and message of a failure's feedback.

    >>> error_of('Traceback\n  File "/work/solution.py", line 3, in <module>\n    x\nKeyError: \'age\'')
    ('KeyError', 3, "'age'")
    """
    submission = re.search(r"Submission error \((\w+)\): (.*)(?:\nError details: (.*))?", feedback)
    if submission:
        return submission.group(1), None, submission.group(3) or submission.group(2)
    lines = WHERE.findall(feedback)
    kind, message = None, ""
    for i, line in enumerate(rows := feedback.splitlines()):
        match = re.match(
            r"^(?:[\w.]*\.)?(\w*(?:Error|Exception|Exit|Interrupt))(?:: (.*))?$", line.removeprefix("Execution failed: ")
        )
        if match:
            kind, message = match.group(1), "\n".join([match.group(2) or "", *rows[i + 1 :]]).strip()
    return kind, int(lines[-1]) if lines else None, message


def feedback_similarity(pairs: Sequence[Pair]) -> dict[str, Any]:
    """On programs that failed for real: how often the failure was predicted, and how alike the two texts are."""
    failed = [p for p in pairs if p.true.status is not ExecutionStatus.OK and p.true.status is not ExecutionStatus.TIMEOUT]
    caught = [p for p in failed if p.predicted.status is not ExecutionStatus.OK]
    kinds, lines, messages = [], [], []
    for p in caught:
        kind, line, message = error_of(p.true.feedback)
        other_kind, other_line, other_message = error_of(p.predicted.feedback)
        kinds.append(kind == other_kind)
        if line is not None:
            lines.append(line == other_line)
        messages.append(difflib.SequenceMatcher(None, message[:300], other_message[:300], autojunk=False).ratio())
    mean = lambda values: float(np.mean(values)) if values else None  # noqa: E731
    return {
        "failed": len(failed),
        "predicted_to_fail": len(caught),
        "same_error_type": mean(kinds),
        "same_line": mean(lines),
        "message_similarity": mean(messages),
    }


def confusion(pairs: Sequence[Pair]) -> dict[str, Any]:
    """False fails and false passes, by class of error."""
    valid = [p for p in pairs if _valid(p.true)]
    invalid = [p for p in pairs if not _valid(p.true)]
    false_fails = [p for p in valid if not _passes(p)]
    missed: dict[str, Counter[str]] = defaultdict(Counter)
    for p in invalid:
        kind = p.true.status.value if p.true.status is not ExecutionStatus.AGENT_ERROR else error_of(p.true.feedback)[0] or "?"
        missed[kind]["all"] += 1
        missed[kind]["missed"] += int(_passes(p))
    blamed = Counter(str(p.predicted.error_type or p.predicted.status.value) for p in false_fails)
    return {
        "valid": len(valid),
        "invalid": len(invalid),
        "false_fails": len(false_fails),
        "false_fail_rate": len(false_fails) / len(valid) if valid else None,
        "false_fails_by_class": dict(blamed.most_common()),
        "false_passes": sum(c["missed"] for c in missed.values()),
        "false_pass_rate": sum(c["missed"] for c in missed.values()) / len(invalid) if invalid else None,
        "failures_by_class": {k: dict(c) for k, c in sorted(missed.items(), key=lambda item: -item[1]["all"])},
    }


def _valid(outcome: Outcome) -> bool:
    return outcome.status is ExecutionStatus.OK


def _passes(pair: Pair) -> bool:
    return pair.predicted.status is ExecutionStatus.OK


def p_valid(outcome: Outcome) -> float:
    """The predicted probability that a program is valid, or the best guess at it."""
    if outcome.p_valid is not None:
        return outcome.p_valid
    return outcome.confidence if _valid(outcome) else 1.0 - outcome.confidence


# ---- the report -----------------------------------------------------------------------------------------------------
def measure(pairs: Sequence[Pair], calibrate_with: Sequence[Pair] = (), seed: int = 0) -> dict[str, Any]:
    """Every figure for one set of pairs.

    Args:
        pairs: what is measured.
        calibrate_with: other pairs of the same world model, predicted before it learnt from them; the calibration fitted on
            them is applied for the figures "after".
        seed: of the random groups.
    """
    if not pairs:
        raise InvalidInput("measure() got no pairs of predicted and executed outcomes.")
    predicted, true, task = _arrays(pairs)
    ok = np.array([_valid(p.true) for p in pairs])
    accuracy, n = pairwise_accuracy(predicted[ok], true[ok], [t for t, o in zip(task, ok, strict=True) if o])
    curve, ece = calibration(predicted, true)
    result: dict[str, Any] = {
        "n": len(pairs),
        "validity_auc": validity_auc(np.array([p_valid(p.predicted) for p in pairs]), ok),
        "validity_agreement": float(np.mean([_valid(p.true) == _passes(p) for p in pairs])),
        **confusion(pairs),
        **_within_tasks(predicted, true, task),
        **_price(pairs),
        "spearman": spearman(predicted, true),
        "within_group_spearman": within_group_spearman(predicted, true, task, seed=seed),
        "pairwise_accuracy_valid": accuracy,
        "pairs_ranked": n,
        "mean_absolute_error": float(np.abs(predicted - true).mean()),
        "calibration": {"before": curve, "ece_before": ece},
        "feedback": feedback_similarity(pairs),
    }
    after = _recalibrated(predicted, calibrate_with)
    if after is not None:
        curve, ece = calibration(after, true)
        result["calibration"] |= {"after": curve, "ece_after": ece, "pairs_used": len(calibrate_with)}
        result["within_group_spearman_after"] = within_group_spearman(after, true, task, seed=seed)
    return result


def _within_tasks(predicted: np.ndarray, true: np.ndarray, task: Sequence[str]) -> dict[str, float | None]:
    """Correlation of predicted and true scores around the means of their tasks, and the slope of the predicted on the true
    ones.
    """
    names = np.asarray(task, dtype=object)
    p, y = predicted.copy(), true.copy()
    for name in dict.fromkeys(task):
        p[names == name] -= p[names == name].mean()
        y[names == name] -= y[names == name].mean()
    square = float(y @ y)
    both = square * float(p @ p)
    return {
        "within_task_correlation": float(p @ y) / both**0.5 if both > 0 else None,
        "within_task_slope": float(p @ y) / square if square > 0 else None,
        "rmse": float(np.sqrt(np.mean((predicted - true) ** 2))),
    }


def _price(pairs: Sequence[Pair]) -> dict[str, float | None]:
    """CPU seconds of execution that a prediction took, and their share of those of the executions themselves (recorded
    ones).
    """
    paid, full = sum(p.predicted.cpu_s for p in pairs), sum(p.true.cpu_s for p in pairs)
    return {"cpu_s_per_program": paid / len(pairs), "cpu_share": paid / full if full else None}


def by(pairs: Sequence[Pair], key: str, seed: int = 0) -> dict[str, dict[str, Any]]:
    """The main figures for each task ("task") or category ("category")."""
    kept = ("n", "validity_auc", "false_fail_rate", "false_pass_rate", "within_group_spearman", "pairwise_accuracy_valid")
    names = dict.fromkeys(getattr(p, key) for p in pairs)
    parts = {name: measure([p for p in pairs if getattr(p, key) == name], seed=seed) for name in names}
    return {name: {k: part[k] for k in kept} for name, part in parts.items()}


def by_fault(pairs: Sequence[Pair]) -> dict[str, dict[str, int]]:
    """For each planted fault: programs, how many really failed, how many of those were predicted to, and false fails."""
    return _counts([(str(p.fault), p) for p in pairs])


def by_origin(pairs: Sequence[Pair]) -> dict[str, dict[str, int]]:
    """The same for each origin."""
    return _counts([(p.origin, p) for p in pairs])


def by_rule(pairs: Sequence[Pair]) -> dict[str, dict[str, int]]:
    """For each rule that a world model names: programs it spoke against, how many of them failed, and what came of it where it
    decided: failures caught and working programs failed. Rules that only doubt decide nothing.
    """
    result: dict[str, dict[str, int]] = {}
    for p in pairs:
        verdicts = [v for v in (p.predicted.details.get("verdicts") or {}).values() if v.get("rule")]
        for rule, sure in {v["rule"]: v["verdict"] == "fail" for v in verdicts}.items():
            row = result.setdefault(rule, {"fired": 0, "failed": 0, "caught": 0, "false_fails": 0})
            row["fired"] += 1
            row["failed"] += not _valid(p.true)
            row["caught"] += sure and not _valid(p.true) and not _passes(p)
            row["false_fails"] += sure and _valid(p.true) and not _passes(p)
    return dict(sorted(result.items(), key=lambda item: (-item[1]["fired"], item[0])))


def _counts(named: Sequence[tuple[str, Pair]]) -> dict[str, dict[str, int]]:
    result: dict[str, dict[str, int]] = {}
    for name in sorted({n for n, _ in named}):
        some = [p for n, p in named if n == name]
        failed = [p for p in some if not _valid(p.true)]
        caught = sum(not _passes(p) for p in failed)
        false = sum(_valid(p.true) and not _passes(p) for p in some)
        result[name] = {"n": len(some), "failed": len(failed), "predicted": caught, "false_fails": false}
    return result


def _arrays(pairs: Sequence[Pair]) -> tuple[np.ndarray, np.ndarray, list[str]]:
    predicted = np.array([p.predicted.score for p in pairs], dtype=float)
    return predicted, np.array([p.true.score for p in pairs], dtype=float), [p.task for p in pairs]


def _recalibrated(predicted: np.ndarray, calibrate_with: Sequence[Pair]) -> np.ndarray | None:
    from wmrl_envs.correction import Recalibrator

    if len(calibrate_with) < 20:
        return None
    p, y, _ = _arrays(calibrate_with)
    recalibrator = Recalibrator(min_pairs=len(p), refit_every=len(p))
    recalibrator.update(p, y)
    return np.asarray(recalibrator.transform(predicted)) if recalibrator.ready else None


def headline(report: Mapping[str, Any]) -> str:
    """One line with the figures that matter."""
    show = lambda value: "-" if value is None else f"{value:.3f}"  # noqa: E731
    return (
        f"{report['n']} programs: validity AUC {show(report['validity_auc'])}, false fails {show(report['false_fail_rate'])}, "
        f"false passes {show(report['false_pass_rate'])}, within-group Spearman {show(report['within_group_spearman'])}, "
        f"pairwise accuracy on valid {show(report['pairwise_accuracy_valid'])}"
    )
