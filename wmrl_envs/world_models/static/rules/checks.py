"""`analyze`: everything static analysis says about one program: predicted failures, estimated cost, features of its model."""

from __future__ import annotations

import ast
import logging
import re
from dataclasses import dataclass, field
from typing import Any

from wmrl_envs.context import TaskContext
from wmrl_envs.outcome import Solution
from wmrl_envs.tasks import scaffold
from wmrl_envs.world_models.static.cost import estimate_cpu_s
from wmrl_envs.world_models.static.features import describe_program
from wmrl_envs.world_models.static.index.api import ApiIndex
from wmrl_envs.world_models.static.interpreter import Interpreter
from wmrl_envs.world_models.static.names import compiled, undefined_names
from wmrl_envs.world_models.static.rules.submission import metric_family
from wmrl_envs.world_models.static.values import UNKNOWN, Column, Const, Data, Finding, Ref, Seq

MAX_CODE = 200_000  # characters; longer programs are not read (and pass with low confidence)
ALWAYS = ("DATA_DIR", "SUBMISSION_PATH")


log = logging.getLogger(__name__)


@dataclass
class Analysis:
    """What was found. `fatal` is the failure that execution would meet first, if any is certain."""

    findings: list[Finding] = field(default_factory=list)
    fatal: Finding | None = None
    cpu_s: float = 0.0
    family: str = ""  # estimator that decides the cost
    features: dict[str, float] = field(default_factory=dict)
    read: bool = True  # False: the program was too long or too deep to follow


def analyze(solution: Solution, context: TaskContext, index: ApiIndex) -> Analysis:
    """Read one program against its task. Never raises for a program, however odd."""
    code = solution.code
    if solution.problem is not None or not code.strip():
        text = solution.problem or "no code"
        finding = Finding("syntax.no-code", "runtime", 1, "NoCode", text, 0.99)
        return Analysis([finding], finding)
    if len(code) > MAX_CODE:
        return Analysis(read=False)
    read = compiled(code)
    if isinstance(read, Finding):
        return Analysis([read], read)
    if read is None:
        return Analysis(read=False)
    tree, used = read
    given = context.scaffold_names.get("names", scaffold.NAMES) if context.scaffold == "sklearn" else ()
    findings = undefined_names(tree, used, frozenset((*ALWAYS, *given)))
    names, rows = _scope(context)
    run = Interpreter(context, index, names, rows)
    run.run(tree)
    findings += run.findings
    if run.exited and not run.saved:
        findings.append(_absent(run.line))
    elif run.complete and not run.ended and not run.saved:
        findings += _nothing_written(tree, context)
    findings.sort(key=lambda f: f.line)
    fatal = next((f for f in findings if f.confidence >= 0.9), None)
    try:
        cpu_s, family = estimate_cpu_s(run.fits, run.sklearn)
        cpu_s += run.python_s
        return Analysis(findings, fatal, cpu_s, family, describe_program(run, context, cpu_s), run.complete)
    except Exception:  # as in the interpreter: an odd program is no reason to end a training run
        log.warning("the cost of a program could not be estimated", exc_info=True)
        return Analysis(findings, fatal, read=False)


def _scope(context: TaskContext) -> tuple[dict[str, Any], dict[str, int]]:
    """Names that are defined before the program starts, and the number of rows behind the tags "train" and "test"."""
    names: dict[str, Any] = {"DATA_DIR": Const("$DATA_DIR"), "SUBMISSION_PATH": Const("$SUBMISSION_PATH")}
    given = context.scaffold_names
    rows: dict[str, int] = {"0": 0}
    train = next((f.rows for f in context.files if f.name == "train.csv" and f.rows), None)
    test = context.submission_rows or next((f.rows for f in context.files if f.name == "test.csv" and f.rows), None)
    train, test = given.get("rows", train), given.get("test_rows", test)
    if train:
        rows["train"] = train
    if test:
        rows["test"] = test
    if context.scaffold != "sklearn":
        return names, rows
    groups = {k: [str(c) for c in given.get(k) or ()] for k in ("num", "cat", "text", "date")}
    with_nan = given.get("nan")
    missing = None if with_nan is None else {str(c) for c in with_nan}
    levels = given.get("levels") or {}
    columns = {
        c: Column(
            text=k != "num",
            nan=False if k == "text" else None if missing is None else c in missing,
            date=k == "date",
            card=levels.get(c) if k == "cat" else None,
        )
        for k, group in groups.items()
        for c in group
    }
    image = given.get("image") is not None or (context.category == "image" and not columns)
    for tag, name in (("train", "X"), ("test", "T")):
        if image:
            names[name] = Data(
                "array",
                rows=tag,
                nan=False,
                text=False,
                ndim=2,
                width=_pixels(context),
                exact=_pixels(context) is not None,
                low=0.0,
                scaled=True,
            )
        else:
            names[name] = Data("frame", columns=dict(columns), rows=tag, ndim=2).summarised()
    several = len(context.target_columns) > 1
    continuous = given.get("target_kind", "reg") == "reg" and metric_family(context.metric) in ("number", "non-negative")
    meaning = "continuous" if continuous and not several else "target"
    names["y"] = Data(
        "frame" if several else "series",
        columns={c: Column(False, False) for c in context.target_columns} if several else None,
        rows="train",
        nan=False,
        text=False if continuous or several else None,
        ndim=2 if several else 1,
        width=float(len(context.target_columns)) if several else 1.0,
        meaning=meaning,
        low=0.0 if metric_family(context.metric) == "non-negative" else None,
    )
    for k, group in groups.items():
        names[k] = Seq([Const(c) for c in group])
    names |= {
        "np": Ref("numpy"),
        "pd": Ref("pandas"),
        "os": Ref("os"),
        "warnings": Ref("warnings"),
        "make_pipeline": Ref("sklearn.pipeline.make_pipeline"),
        "cols": Ref("sklearn.compose.make_column_transformer"),
        "save": Ref("scaffold.save"),
    }
    return names, rows


def _pixels(context: TaskContext) -> float | None:
    size = context.scaffold_names.get("image")
    return float(size[0] * size[1]) if isinstance(size, (list, tuple)) and len(size) == 2 else None


_WRITES = re.compile(r"SUBMISSION_PATH|submission|to_csv|\bsave\s*\(|open\s*\(|exec\s*\(|eval\s*\(")


def _nothing_written(tree: ast.Module, context: TaskContext) -> list[Finding]:
    """A program that never mentions a way to write its predictions leaves no submission."""
    used = {getattr(n, "id", getattr(n, "attr", None)) for n in ast.walk(tree) if isinstance(n, (ast.Name, ast.Attribute))}
    run = [s for s in tree.body if not (isinstance(s, (ast.FunctionDef, ast.ClassDef)) and s.name not in used)]
    code, last = "\n".join(map(ast.unparse, run)), max((s.end_lineno or s.lineno for s in tree.body), default=1)
    wanted = r"SUBMISSION_PATH|\bsave\s*\(" if context.scaffold == "sklearn" else r"SUBMISSION_PATH|exec\(|eval\("
    return [] if _WRITES.search(code) and re.search(wanted, code) else [_absent(last)]


def _absent(line: int) -> Finding:
    return Finding("submission.absent", "submission", line, "SubmissionNotFoundError", "Submission file not found", 0.95)


__all__ = ["UNKNOWN", "Analysis", "analyze"]
