"""`analyze`: everything static analysis says about one program: predicted failures, estimated cost, features of its model."""

from __future__ import annotations

import ast
import logging
import re
from dataclasses import dataclass, field

from wmrl_envs.context import TaskContext
from wmrl_envs.outcome import Solution
from wmrl_envs.tasks import scaffold
from wmrl_envs.world_models.static.cost import estimate_cpu_s
from wmrl_envs.world_models.static.features import describe_program
from wmrl_envs.world_models.static.index.api import ApiIndex
from wmrl_envs.world_models.static.interpreter import Interpreter
from wmrl_envs.world_models.static.names import compiled, undefined_names
from wmrl_envs.world_models.static.rules.table import finding
from wmrl_envs.world_models.static.scope import names_before
from wmrl_envs.world_models.static.values import Data, Finding

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
    followed: bool = True  # False: no model that is known was fitted, or it is not known what is handed in
    read: bool = True  # False: the program was too long or too deep to follow


def analyze(solution: Solution, context: TaskContext, index: ApiIndex) -> Analysis:
    """Read one program against its task. Never raises for a program, however odd."""
    code = solution.code
    if solution.problem is not None or not code.strip():
        text = solution.problem or "no code"
        found = finding("syntax.no-code", 1, text=text)
        return Analysis([found], found)
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
    names, rows = names_before(context)
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
        cpu_s, family = estimate_cpu_s(run)
        cpu_s += run.python_s
        return Analysis(
            findings, fatal, cpu_s, family, describe_program(run, context, cpu_s, run.steps), _followed(run), run.complete
        )
    except Exception:  # as in the interpreter: an odd program is no reason to end a training run
        log.warning("the cost of a program could not be estimated", exc_info=True)
        return Analysis(findings, fatal, read=False)


def _followed(run: Interpreter) -> bool:
    """Whether the analysis knows a model that was fitted and how many rows are handed in."""
    handed_in = next((s for s in run.saved if isinstance(s, Data)), None)
    return bool(run.fits) and handed_in is not None and run.count(handed_in.rows) is not None


_WRITES = re.compile(r"SUBMISSION_PATH|submission|to_csv|\bsave\s*\(|open\s*\(|exec\s*\(|eval\s*\(")


def _nothing_written(tree: ast.Module, context: TaskContext) -> list[Finding]:
    """A program that never mentions a way to write its predictions leaves no submission."""
    used = {getattr(n, "id", getattr(n, "attr", None)) for n in ast.walk(tree) if isinstance(n, (ast.Name, ast.Attribute))}
    run = [s for s in tree.body if not (isinstance(s, (ast.FunctionDef, ast.ClassDef)) and s.name not in used)]
    code, last = "\n".join(map(ast.unparse, run)), max((s.end_lineno or s.lineno for s in tree.body), default=1)
    wanted = r"SUBMISSION_PATH|\bsave\s*\(" if context.scaffold == "sklearn" else r"SUBMISSION_PATH|exec\(|eval\("
    return [] if _WRITES.search(code) and re.search(wanted, code) else [_absent(last)]


def _absent(line: int) -> Finding:
    return finding("submission.absent", line)
