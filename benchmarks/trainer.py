"""Seconds a GRPO step: this trainer against TRL's `GRPOTrainer`, and the memory of an update at a large vocabulary.

    python benchmarks/trainer.py                # both trainers in turn (TRL's environment: `make test-trl` installs it in .venv-trl)
    python benchmarks/trainer.py --memory       # peak memory of one update, vocabulary 151,936

Both train SmolLM2-135M (`wmrl model fetch smollm2`) in float32 on the CPU with the same prompts, lengths, reward function, batch and
optimizer settings: a group of 8 completions of 64 tokens for each of one or two prompts of 128 tokens, no KL term, loss "grpo", advantages without
scaling, AdamW, no gradient checkpointing, one micro-batch. Every run is a process of its own, ours and TRL's alternate, and a run's first
step (warm-up) is left out. CPU seconds are given beside the wall clock, for a busy machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

GROUP, PROMPT_TOKENS, NEW_TOKENS = 8, 128, 64
LR = 1e-6
SUBJECTS = ("the sea", "a machine")
STAGES = ("generate", "reward", "update", "other")


def reward(text: str) -> float:
    """Share of lower-case letters."""
    return sum(c.islower() for c in text) / max(len(text), 1)


def prompts(tokenizer: Any, groups: int) -> list[str]:
    """Texts of exactly PROMPT_TOKENS tokens."""
    texts = []
    for subject in SUBJECTS[:groups]:
        text = f"Write a short story about {subject}."
        while len(tokenizer(text)["input_ids"]) < PROMPT_TOKENS:
            text += " Then"
        assert len(tokenizer(text)["input_ids"]) == PROMPT_TOKENS
        texts.append(text)
    return texts


# -- ours ------------------------------------------------------------------------------------------------------------
def ours(steps: int, groups: int, folder: Path) -> list[dict[str, float]]:
    """The whole trainer: rollout lanes, correction, learner, records."""
    from wmrl_envs.context import TaskContext
    from wmrl_envs.envs.executable import ExecutableEnv
    from wmrl_envs.outcome import ExecutionStatus, Outcome, Solution
    from wmrl_envs.spaces import UnicodeText
    from wmrl_train.config import load_config
    from wmrl_train.engines.models import model_path
    from wmrl_train.engines.transformers import TransformersEngine, load_model
    from wmrl_train.run.rundir import RunDirectory
    from wmrl_train.training.build import text_parts
    from wmrl_train.training.trainer import Trainer

    class Story(ExecutableEnv):
        """One turn, executed by the reward function."""

        def __init__(self, task: str):
            self.action_space = self.observation_space = UnicodeText(10_000)
            self.task = task

        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            return self.task, {}

        def propose(self, action: str) -> Solution:
            return Solution(action, self.task)

        def execute(self, solution: Solution) -> Outcome:
            return Outcome(ExecutionStatus.OK, reward(solution.code))

        def observe(self, outcome: Outcome) -> Any:
            return "", outcome.score, True, False, {}

        def context(self) -> TaskContext:
            return TaskContext(self.task)

    class Writer:
        """The prompt as it is; never stops early."""

        max_new_tokens, stop_ids = NEW_TOKENS, (-1,)

        def begin(self, observation: str, context: TaskContext) -> list[int]:
            return list(tokenizer(observation)["input_ids"])

        def act(self, text: str) -> str:
            return text

    model, tokenizer = load_model(model_path("smollm2"), device="cpu")
    config = load_config(
        {
            "run": {"dir": str(folder)}, "train": {"steps": steps + 1}, "eval": {"k": 0},
            "rollout": {"groups": groups, "group_size": GROUP, "max_new_tokens": NEW_TOKENS},
            "world_model": {"kind": "none"}, "anchors": {"fraction": 1.0}, "correction": {"debias": False, "denoise": False},
            "optim": {"lr": LR, "kl_coef": 0.0, "entropy_coef": 0.0},
        }
    )  # fmt: skip
    run = RunDirectory(config.run_dir)
    run.acquire()
    parts = text_parts(
        model, tokenizer, TransformersEngine(model, tokenizer), Writer(), Story, None, prompts(tokenizer, groups)
    )  # type: ignore[arg-type]
    trainer = Trainer(config, parts, run)
    records = []
    for _ in range(steps + 1):
        cpu = time.process_time()
        trainer._train_step()
        records.append({"cpu": time.process_time() - cpu})
    trainer.close()
    run.release()
    for record, step in zip(records, run.read("metrics.jsonl"), strict=True):
        assert step["policy/tokens"] == groups * GROUP * NEW_TOKENS
        record |= {"step": step["time/step_s"], "generate": step["time/generate_s"], "reward": step["time/execute_s"],
                   "update": step["time/learn_s"], "other": step["time/other_s"]}  # fmt: skip
    return records[1:]


# -- TRL -------------------------------------------------------------------------------------------------------------
def trl(steps: int, groups: int, folder: Path) -> list[dict[str, float]]:
    """`GRPOTrainer` with the same settings."""
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from wmrl_train.engines.models import model_path

    spent = dict.fromkeys(STAGES, 0.0)
    records: list[dict[str, float]] = []

    def lower_case(completions: list[str], **_: Any) -> list[float]:
        began = time.perf_counter()
        scores = [reward(text) for text in completions]
        spent["reward"] += time.perf_counter() - began
        return scores

    class Timed(GRPOTrainer):
        def _generate(self, *args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            made = super()._generate(*args, **kwargs)
            spent["generate"] += time.perf_counter() - began
            return made

    class Clock(TrainerCallback):
        def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
            spent.update(dict.fromkeys(STAGES, 0.0))
            self.began, self.cpu = time.perf_counter(), time.process_time()

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            step = time.perf_counter() - self.began
            update = step - spent["generate"] - spent["reward"]
            records.append({"cpu": time.process_time() - self.cpu, "step": step} | spent | {"update": update})

    tokenizer = AutoTokenizer.from_pretrained(model_path("smollm2"))
    model = AutoModelForCausalLM.from_pretrained(model_path("smollm2"), dtype=torch.float32)
    settings = GRPOConfig(
        output_dir=str(folder), max_steps=steps + 1, per_device_train_batch_size=groups * GROUP, num_generations=GROUP,
        max_completion_length=NEW_TOKENS, generation_kwargs={"min_new_tokens": NEW_TOKENS}, temperature=1.0, beta=0.0,
        loss_type="grpo", scale_rewards="none", learning_rate=LR, lr_scheduler_type="constant", gradient_checkpointing=False,
        use_cpu=True, bf16=False, report_to=[], save_strategy="no", disable_tqdm=True, seed=0,
    )  # fmt: skip
    data = Dataset.from_list([{"prompt": text} for text in prompts(tokenizer, groups)])
    trainer = Timed(model, lower_case, args=settings, train_dataset=data, processing_class=tokenizer, callbacks=[Clock()])
    trainer.train()
    lengths = {entry["completions/mean_length"] for entry in trainer.state.log_history if "completions/mean_length" in entry}
    assert lengths <= {float(NEW_TOKENS)}, lengths
    return records[1:]


# -- memory ----------------------------------------------------------------------------------------------------------
def memory(rows: int, tokens: int, chunk: int | None) -> dict[str, float]:
    """Peak growth of this process's memory over one update of `rows` x `tokens` sampled tokens."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from wmrl_train.config import OptimConfig
    from wmrl_train.episodes.records import Row
    from wmrl_train.learn import learner as module

    torch.manual_seed(0)
    size = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
    }
    model = LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, max_position_embeddings=8192, tie_word_embeddings=True, **size))
    config = OptimConfig(kl_coef=0.0, tokens_per_micro_batch=rows * tokens)
    learner = module.Learner(model, config)

    def samples(tokens: int) -> list[module.Sample]:
        made = []
        for i in range(rows):
            row = Row()
            row.add([i])
            row.add([(7 * i + j) % VOCABULARY for j in range(tokens - 1)], [-12.0] * (tokens - 1))
            made.append(module.Sample(row, (-1.0) ** i, 1 / rows, tokens - 1))
        return made

    learner.update(samples(4))  # moments, thread pools
    module.CHUNK_ELEMENTS = chunk or module.CHUNK_ELEMENTS
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    learner.update(samples(tokens))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20
    logits = rows * (tokens - 1) * VOCABULARY * 4 / 2**30
    return {"rows": rows, "tokens": tokens, "chunk_gib": module.CHUNK_ELEMENTS * 4 / 2**30, "logits_gib": logits,
            "peak_growth_gib": grown, "seconds": time.perf_counter() - began}  # fmt: skip


VOCABULARY = 151_936


# -- both ------------------------------------------------------------------------------------------------------------
def in_process(python: str, *arguments: object) -> Any:
    """What this script prints as JSON in a process of its own."""
    environment = os.environ | {
        "PYTHONPATH": str(Path(__file__).parents[1]), "HF_HUB_OFFLINE": "1",
        "OMP_WAIT_POLICY": "passive",  # threads that spin while they wait would count as work
    }  # fmt: skip
    command = [python, __file__, *map(str, arguments)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def compare(python: str, rounds: int, steps: int, groups: int, threads: int, earlier: Any) -> dict[str, Any]:
    """Medians of both sides, their ratios, and every step measured, those of `earlier` runs included."""
    steps_of: dict[str, list[dict[str, float]]] = earlier or {"wmrl": [], "trl": []}
    for _ in range(rounds):
        for side, interpreter in (("wmrl", sys.executable), ("trl", python)):
            steps_of[side] += in_process(
                interpreter, "--side", side, "--steps", steps, "--groups", groups, "--threads", threads
            )
    medians = {
        side: {key: statistics.median(r[key] for r in records) for key in ("step", "cpu", *STAGES)}
        for side, records in steps_of.items()
    }
    ratio = {key: medians["wmrl"][key] / medians["trl"][key] for key in ("step", "cpu", "generate", "update")}
    overhead = statistics.median(r["other"] / r["step"] for r in steps_of["wmrl"])
    return {"groups": groups, "medians": medians, "ratio": ratio, "overhead": overhead, "steps": steps_of}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trl", default=".venv-trl/bin/python", help="interpreter of the environment with TRL")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each trainer")
    parser.add_argument("--steps", type=int, default=3, help="measured steps a run")
    parser.add_argument("--groups", type=int, default=2, choices=[1, 2], help="prompts a step")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--shape", type=int, nargs=2, default=(8, 4096), metavar=("ROWS", "TOKENS"), help="of --memory")
    parser.add_argument("--chunk", type=int, help="logits at a time, instead of the learner's own bound")
    parser.add_argument("--side", choices=["wmrl", "trl", "memory"], help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, help="write everything as JSON; steps already in it count too")
    given = parser.parse_args()
    if given.side:
        import torch

        torch.set_num_threads(given.threads)
        with tempfile.TemporaryDirectory() as folder:
            if given.side == "memory":
                found: Any = memory(*given.shape, given.chunk)
            else:
                found = {"wmrl": ours, "trl": trl}[given.side](given.steps, given.groups, Path(folder))
        print(json.dumps(found))
        return
    machine = {"cores": os.cpu_count(), "load": os.getloadavg(), "threads": given.threads, "python": platform.python_version()}
    if given.memory:
        chunk = ["--chunk", given.chunk] if given.chunk else []
        result = in_process(sys.executable, "--side", "memory", "--shape", *given.shape, "--threads", given.threads, *chunk)
        print(f"{given.shape[0]} x {given.shape[1]} tokens, vocabulary {VOCABULARY}: peak growth {result['peak_growth_gib']:.2f} GiB in "
              f"chunks of {result['chunk_gib']:.2f} GiB; the logits alone would be {result['logits_gib']:.1f} GiB")  # fmt: skip
    else:
        done = given.output is not None and given.output.exists()
        earlier = json.loads(given.output.read_text())["steps"] if done else None
        result = compare(given.trl, given.rounds, given.steps, given.groups, given.threads, earlier)
        print("| seconds a step (median) | this trainer | TRL | ratio |")
        print("|---|---|---|---|")
        for key in ("step", "cpu", *STAGES):
            mine, theirs = (result["medians"][side][key] for side in ("wmrl", "trl"))
            print(f"| {key} | {mine:.2f} | {theirs:.2f} | {f'{mine / theirs:.2f}' if theirs else ''} |")
        print(f"overhead (neither model nor execution): {result['overhead']:.2%} of a step")
    if given.output:
        given.output.write_text(json.dumps({"machine": machine} | result, indent=1) + "\n")


if __name__ == "__main__":
    main()
