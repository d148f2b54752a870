"""Test doubles, named as such: a tiny random policy, an environment whose score is a function of the text, a fake world model."""

from __future__ import annotations

import os
import random
import string
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from wmrl_envs.context import TaskContext
from wmrl_envs.envs.executable import ExecutableEnv
from wmrl_envs.errors import InfrastructureError
from wmrl_envs.execution.base import Job, Sandbox
from wmrl_envs.outcome import Execution, ExecutionStatus, Outcome, Solution
from wmrl_envs.spaces import UnicodeText


def tiny_model(seed: int = 0) -> tuple[Any, Any]:
    """A random 2-layer Llama on single characters, with a chat template."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    characters = ["<pad>", "<end>", "<user>", "<assistant>", *string.printable]
    tokenizer = Tokenizer(models.WordLevel({c: i for i, c in enumerate(characters)}, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(["<pad>", "<end>", "<user>", "<assistant>"])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", clean_up_tokenization_spaces=False)
    fast.chat_template = (
        "{% for m in messages %}{{ '<assistant>' if m.role == 'assistant' else '<user>' }}{{ m.content }}<end>{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(characters), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=512, eos_token_id=1, pad_token_id=0, initializer_range=0.2,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval(), fast


def torchrun(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Two processes on this machine that run `arguments` (a script, or `-m` and a module)."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", *map(str, arguments)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=850, check=False)


class ObedientSandbox(Sandbox):
    """Runs nothing: a program's first line names the status it ends with (`#ok`, `#timeout`, `#infra`), the rest is its submission."""

    tier = "unsafe"

    def __init__(self, wall_s: float = 0.5):
        self.jobs: list[Job] = []
        self.closed = 0
        self._wall_s = wall_s

    def run_job(self, job: Job) -> Execution:
        self.jobs.append(job)
        first, _, rest = job.code.partition("\n")
        if first == "#infra":
            raise InfrastructureError("the daemon is gone")
        status = ExecutionStatus(first.removeprefix("#"))
        if status is not ExecutionStatus.OK:
            return Execution(status, 1, stderr="Traceback: boom", wall_s=self._wall_s)
        return Execution(status, 0, stdout="done\n", submission=rest.encode() or None, wall_s=self._wall_s)

    def close(self) -> None:
        self.closed += 1


def write_competition(root: Path, slug: str, id_column: str, target: str, rows: int = 20) -> dict[str, str]:
    """A competition in MLE-Dojo's layout on made-up data with a 0/1 target; returns submissions (`perfect`, `half`, `none`)."""
    public, private = root / slug / "data" / "public", root / slug / "data" / "private"
    public.mkdir(parents=True)
    private.mkdir()
    truth = [i % 2 for i in range(rows)]
    (public / "description.txt").write_text(f"Predict {target}.\n\n## Evaluation\n\nBinary predictions.\n")
    train = "".join(f"{1000 + i},{i % 2}.5,red,{i % 2}\n" for i in range(3 * rows))
    (public / "train.csv").write_text(f"{id_column},x,colour,{target}\n{train}")
    (public / "test.csv").write_text(f"{id_column},x,colour\n" + "".join(f"{i},{t}.5,blue\n" for i, t in enumerate(truth)))

    def submission(values: list[int]) -> str:
        return f"{id_column},{target}\n" + "".join(f"{i},{v}\n" for i, v in enumerate(values))

    (public / "sample_submission.csv").write_text(submission([0] * rows))
    (private / "test_answer.csv").write_text(submission(truth))
    board = "rank,score\n" + "".join(f"{i + 1},{1 - i / 10}\n" for i in range(10))
    for name in ("private", "public"):
        (private / f"{name}_leaderboard.csv").write_text(board)
    half = [t if i < rows // 2 else 1 - t for i, t in enumerate(truth)]
    return {"perfect": submission(truth), "half": submission(half), "none": submission([1 - t for t in truth])}


def toy_score(text: str) -> float:
    """Share of lower-case letters: a random policy starts near a quarter, and one that learns has far to go."""
    return sum(c.islower() for c in text) / max(len(text), 1)


class ToyEnv(ExecutableEnv):
    """A test double of a competition: the score of a text is `toy_score`, and a text with a tilde in front holds no program.

    Args:
        delay_s: of an execution.
        broken: texts (by number of executions so far) at which the infrastructure fails; a callable count -> bool.
    """

    def __init__(self, task: str = "toy", max_turns: int = 1, delay_s: float = 0.0, broken: Any = None):
        self.action_space = self.observation_space = UnicodeText(10_000)
        self.task, self.max_turns, self.delay_s = task, max_turns, delay_s
        self.broken, self.executions, self.history = broken, 0, ()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.turn, self.best, self.history = 0, 0.0, ()
        return f"task {self.task}", {}

    def propose(self, action):
        return Solution(action, self.task, problem="no program" if action.startswith("~") else None)

    def execute(self, solution):
        if solution.problem:
            return Outcome(ExecutionStatus.AGENT_ERROR, feedback=solution.problem)
        self.executions += 1
        if self.delay_s:
            time.sleep(self.delay_s)
        if self.broken is not None and self.broken(self.executions):
            return Outcome(ExecutionStatus.INFRA_ERROR, error="the sandbox broke")
        return Outcome(
            ExecutionStatus.OK, toy_score(solution.code), feedback=f"score {toy_score(solution.code):.3f}", cpu_s=0.25
        )

    def observe(self, outcome):
        self.turn += 1
        before, self.best = self.best, max(self.best, outcome.score)
        self.history = (*self.history, ("", outcome.feedback))
        done = self.turn >= self.max_turns
        return outcome.feedback, self.best - before, done, False, {"wmrl": {"status": outcome.status.value}}

    def context(self):
        return TaskContext(self.task, history=self.history)


class FakeWorldModel:
    """A test double of an outcome model: `0.3 + 0.5 * true ** 1.5` plus noise that is a function of the text."""

    def __init__(self, sigma: float = 0.05, broken: Any = None):
        self.sigma, self.broken, self.calls, self.updates = sigma, broken, 0, []

    def predict(self, solutions, contexts):
        self.calls += 1
        if self.broken is not None and self.broken(self.calls):
            raise InfrastructureError("the world model broke")
        return [Outcome(ExecutionStatus.OK, self._score(s.code), feedback="predicted", source="predicted") for s in solutions]

    def update(self, solutions, contexts, outcomes):
        self.updates.append([(s.code, o.score) for s, o in zip(solutions, outcomes, strict=True)])

    def _score(self, code):
        noise = random.Random(code).gauss(0, self.sigma)
        return min(1.0, max(0.0, 0.3 + 0.5 * toy_score(code) ** 1.5 + noise))


class ToyAgent:
    """A test double of an agent: the observation's characters as they are, completions as actions."""

    stop_ids = (1,)

    def __init__(self, tokenizer: Any, max_new_tokens: int = 12):
        self._tokenizer, self.max_new_tokens = tokenizer, max_new_tokens

    def begin(self, observation, context):
        return self._tokenizer(f"<user>{observation}<end><assistant>")["input_ids"]

    def extend(self, observation, completion_ids):
        closing = "" if completion_ids[-1:] == self.stop_ids else "<end>"
        return self._tokenizer(f"{closing}<user>{observation}<end><assistant>")["input_ids"]

    def act(self, text):
        return text
