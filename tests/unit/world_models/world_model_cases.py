"""Tasks, programs and test doubles that the tests of world models share."""

import json

from wmrl_envs.context import FileInfo, TaskContext
from wmrl_envs.engine import Generation
from wmrl_envs.outcome import Solution


def tabular(metric="roc_auc", **changes):
    """A scaffolded tabular task with numeric, categorical and date columns, missing values in two of them."""
    names = {"num": ["age", "income"], "cat": ["home", "job"], "text": [], "date": ["start"], "nan": ["income", "job"]}
    names |= {"rows": 1000, "test_rows": 400, "target": ["label"], "target_kind": "bin", "image": None}
    columns = {"id": "str", "age": "int", "income": "float", "home": "str", "job": "str", "start": "str"}
    files = (
        FileInfo("train.csv", 10_000, 1000, {**columns, "label": "int"}, missing=("income", "job")),
        FileInfo("test.csv", 5_000, 400, columns, missing=("income", "job")),
        FileInfo("sample_submission.csv", 2_000, 400, {"id": "str", "label": "float"}),
    )
    given = {
        "task": "credit",
        "category": "tabular",
        "metric": metric,
        "files": files,
        "submission_columns": ("id", "label"),
        "id_columns": ("id",),
        "target_columns": ("label",),
        "submission_rows": 400,
        "timeout_s": 10.0,
        "scaffold": "sklearn",
        "scaffold_names": {**names, **changes.pop("names", {})},
    }
    return TaskContext(**{**given, **changes})


def script(**changes):
    """The same task for whole scripts."""
    return tabular(scaffold=None, scaffold_names={}, **changes)


def program(text, task="credit"):
    return Solution(code=text, task=task)


def answer(verdict="pass", confidence=0.9, **more):
    return json.dumps({"reason": "because", "verdict": verdict, "confidence": confidence, **more})


class ScriptedEngine:
    """A test double: answers by a function of the user prompt, counts calls, and fails when told to."""

    tokenizer = None
    version = 0

    def __init__(self, reply=None, failures=0, max_context=None):
        self.reply = reply or (lambda prompt: answer(score=0.7))
        self.failures, self.batches, self.sampling = failures, [], None
        if max_context:
            self.max_context = max_context

    def generate(self, prompts, sampling, seeds=None):
        self.batches.append(list(prompts))
        self.sampling = sampling
        if self.failures:
            self.failures -= 1
            raise ConnectionError("the server went away")
        texts = [self.reply(p[-1]["content"] if p[-1]["role"] == "user" else "") for p in prompts]
        return [Generation((), (), t) for t in texts]

    def update_weights(self, weights):
        self.version += 1

    def close(self):
        pass
