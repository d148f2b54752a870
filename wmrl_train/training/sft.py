"""Supervised fine-tuning of a language model on conversations: the policy loss with an advantage of 1.

Data are JSONL files of conversations, `{"messages": [...]}` or `{"prompt": ..., "completion": ...}`, and runs of `wmrl train`,
of which the best episodes are imitated (rejection sampling). The loss is on the agent's tokens alone, in the tokens that the
trainer would see: prompts are encoded as prompts, answers by themselves, and what a run recorded is never encoded again.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml
from pydantic import Field

from wmrl_envs.errors import InvalidInput
from wmrl_train.agents.chat import ChatFormat
from wmrl_train.config import LoraConfig, OptimConfig, Section, load_config
from wmrl_train.engines.models import check_model, model_path
from wmrl_train.episodes.records import Row
from wmrl_train.run.rundir import RunDirectory

SETTINGS = "sft.yaml"


class SftConfig(Section):
    """Settings of a fine-tuning."""

    model: str
    """"demo", "smollm2", or a model directory."""
    data: list[str]
    """JSONL files of conversations, and directories of runs."""
    steps: int = Field(default=100, ge=1)
    batch: int = Field(default=16, ge=1)
    """Rows a step."""
    lr: float = Field(default=1e-5, gt=0)
    """Constant after `warmup_steps`."""
    warmup_steps: int = Field(default=5, ge=0)
    weight_decay: float = Field(default=0.0, ge=0)
    max_tokens: int = Field(default=4096, ge=2)
    """Longer rows are cut; those without an agent's token before the cut are left out."""
    tokens_per_micro_batch: int = Field(default=16384, ge=64)
    lora: LoraConfig | None = None
    dtype: Literal["float32", "bfloat16"] = "float32"
    device: str = "auto"
    seed: int = Field(default=0, ge=0)
    save_every: int = Field(default=50, ge=1)
    top: float = Field(default=0.25, gt=0, le=1)
    """Of a run: share of each task's episodes that is imitated, the best ones; never one without reward."""
    predicted: bool = False
    """Of a run: also episodes that were only predicted, by their calibrated score."""


class _Loss(OptimConfig):
    loss: Literal["nll"] = "nll"  # type: ignore[assignment]


@dataclass(frozen=True)
class Data:
    """Rows to learn from; how many were cut to `max_tokens`, and how many had nothing to learn from before the cut."""

    rows: list[Row]
    cut: int = 0
    left_out: int = 0

    def __str__(self) -> str:
        tokens = sum(row.n_sampled for row in self.rows)
        return f"{len(self.rows)} rows with {tokens} tokens to learn; {self.cut} rows cut, {self.left_out} left out"


def run(
    config: SftConfig,
    out: str | Path,
    *,
    resume: bool = False,
    on_data: Callable[[Data], None] | None = None,
    on_step: Callable[[int, dict[str, float]], None] | None = None,
) -> Path:
    """Fine-tune; returns `out`/model, which `policy.model` and `wmrl eval --agent` take (adapters merged).

    `out` also gets sft.yaml, metrics.jsonl (a line a step: loss in nats a token, tokens, gradient norm) and checkpoints/. Which
    rows a step takes depends on seed and step alone, so a resumed run repeats an uninterrupted one.
    """
    check_model(config.model)  # before anything slow is imported
    for source in config.data:
        if not Path(source).exists():
            raise InvalidInput(f"{source} does not exist: expected a JSONL file of conversations, or the directory of a run.")
    import torch
    from transformers.utils import logging as transformers_logging

    from wmrl_train.engines.transformers import load_model
    from wmrl_train.learn.learner import Learner, Sample
    from wmrl_train.run import checkpoint

    transformers_logging.disable_progress_bar()
    folder = RunDirectory(out)
    folder.acquire()
    try:
        if folder.has_run:
            raise InvalidInput(f"{folder.path} holds a run of `wmrl train`: choose another folder to write to.")
        if any(folder.checkpoints.glob("step-*")) and not resume:
            raise InvalidInput(f"{folder.path} holds a fine-tuning already: go on with --resume, or choose another folder.")
        torch.manual_seed(config.seed)
        model, tokenizer = load_model(model_path(config.model), device=config.device)
        data = load(config, tokenizer)
        if on_data is not None:
            on_data(data)
        if config.lora is not None:
            model = _with_adapters(model, config.lora)
        settings = _Loss(
            lr=config.lr, warmup_steps=config.warmup_steps, weight_decay=config.weight_decay, kl_coef=0.0, entropy_coef=0.0,
            tokens_per_micro_batch=config.tokens_per_micro_batch,
        )  # fmt: skip
        learner = Learner(model, settings, autocast=torch.bfloat16 if config.dtype == "bfloat16" else None)
        done = 0
        if resume:
            saved = checkpoint.latest(folder.checkpoints)
            _check_same(config, folder.path)
            checkpoint.load_weights(saved, model)
            learner.load_state_dict(checkpoint.load_optimizer(saved))
            folder.truncate(saved.state["logs"])
            done = saved.step
        else:
            folder.truncate({})
        (folder.path / SETTINGS).write_text(yaml.safe_dump(config.model_dump(), sort_keys=False), encoding="utf-8")
        for step in range(done, config.steps):
            chosen = [data.rows[i] for i in batch_at(len(data.rows), config.batch, config.seed, step)]
            values = learner.update([Sample(row, 1.0, 1 / len(chosen), row.n_sampled) for row in chosen])
            record = {key: values[key] for key in ("loss", "entropy", "grad_norm", "tokens", "lr")}
            folder.append("metrics.jsonl", {"step": step + 1} | record)
            if on_step is not None:
                on_step(step + 1, record)
            if (step + 1) % config.save_every == 0 or step + 1 == config.steps:
                state = {"logs": folder.sizes()}
                checkpoint.save(
                    folder.checkpoints, step + 1, model=model, tokenizer=tokenizer, optimizer=learner.state_dict(),
                    state=state, keep=2
                )  # fmt: skip
        whole = model.merge_and_unload() if config.lora is not None else model
        whole.save_pretrained(folder.path / "model")
        tokenizer.save_pretrained(folder.path / "model")
    finally:
        folder.release()
    return folder.path / "model"


def batch_at(n: int, batch: int, seed: int, step: int) -> list[int]:
    """Rows of a step: the next `batch` of an endless sequence of shuffled passes over `n` rows.

    >>> sorted(batch_at(4, 2, 0, 0) + batch_at(4, 2, 0, 1))
    [0, 1, 2, 3]
    """
    result = []
    for position in range(step * batch, (step + 1) * batch):
        epoch, at = divmod(position, n)
        result.append(int(np.random.default_rng([seed, epoch]).permutation(n)[at]))
    return result


# -- data ----------------------------------------------------------------------------------------------------------------
def load(config: SftConfig, tokenizer: Any) -> Data:
    """The rows of all sources, cut to `max_tokens`."""
    if not config.data:
        raise InvalidInput("Nothing to learn from: give conversations or a run with --data.")
    rows: list[Row] = []
    for source in map(Path, config.data):
        is_run = source.is_dir() or source.name == "rollouts.jsonl"
        found = episodes(source, tokenizer, config.top, config.predicted) if is_run else conversations(source, tokenizer)
        rows += found
    return fit_rows(rows, config.max_tokens)


def fit_rows(rows: Iterable[Row], max_tokens: int) -> Data:
    """Cut longer rows, and leave out those in which nothing of the agent's remains.

    Raises:
        InvalidInput: nothing remains at all.
    """
    kept, cut, left_out = [], 0, 0
    for row in rows:
        if len(row.ids) > max_tokens:
            row = Row(row.ids[:max_tokens], row.sampled[:max_tokens], row.logprobs[:max_tokens])
            cut += row.n_sampled > 0
        if row.n_sampled:
            kept.append(row)
        else:
            left_out += 1
    if not kept:
        raise InvalidInput(
            f"None of {left_out} rows has a token of the agent's within max_tokens={max_tokens}: raise --max-tokens."
        )
    return Data(kept, cut, left_out)


def conversations(file: Path, tokenizer: Any) -> list[Row]:
    """The rows of a JSONL file; an answer ends with the token that ends the agent's turns."""
    try:
        lines = file.read_text(encoding="utf-8").split("\n")  # splitlines() would also cut at U+2028 within a text
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(
            f"{file} cannot be read ({error}): expected a JSONL file of conversations, or the directory of a run."
        ) from None
    rows: list[Row] = []
    chat: ChatFormat | None = None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{file}, line {number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:  # RecursionError: brackets within brackets within brackets
            raise InvalidInput(f"{where} is not JSON ({error}): expected one object a line.") from None
        if isinstance(record, dict) and "messages" in record:
            chat = chat or ChatFormat(tokenizer)
            rows += chat_rows(_checked(record["messages"], where), chat)
        elif isinstance(record, dict) and isinstance(record.get("prompt"), str) and isinstance(record.get("completion"), str):
            rows.append(completion_row(record["prompt"], record["completion"], tokenizer, where))
        else:
            keys = ", ".join(map(repr, record)) if isinstance(record, dict) else type(record).__name__
            raise InvalidInput(f"{where} holds {keys or 'nothing'}: expected 'messages', or 'prompt' and 'completion' as text.")
    if not rows:
        raise InvalidInput(f"{file} holds no conversation: expected one a line.")
    return rows


def chat_rows(messages: Sequence[Mapping[str, str]], chat: ChatFormat) -> list[Row]:
    """One row, or one an answer where the template rewrites earlier turns."""
    rows: list[Row] = []
    asked: list[Any] = []  # since the last answer
    for i, message in enumerate(messages):
        if message["role"] != "assistant":
            asked.append(message)
            continue
        if not rows or chat.rewrites:
            rows.append(Row())
            rows[-1].add(chat.encode(messages[:i]))
        else:
            rows[-1].add(chat.follow(rows[-1].ids, asked))
        answer = chat.template.plain(message["content"])
        rows[-1].add([*answer, chat.end_id], [0.0] * (len(answer) + 1))
        asked = []
    return rows


def completion_row(prompt: str, completion: str, tokenizer: Any, where: str = "a prompt") -> Row:
    """A text and its continuation, without a template."""
    if tokenizer.eos_token_id is None:
        raise InvalidInput("This tokenizer has no end token, so a completion could not end: expected tokenizer.eos_token.")
    row = Row()
    row.add(tokenizer(prompt)["input_ids"])
    if not row.ids:
        raise InvalidInput(f"{where} has an empty prompt: expected at least one token before the completion.")
    answer = tokenizer(completion, add_special_tokens=False)["input_ids"]
    row.add([*answer, tokenizer.eos_token_id], [0.0] * (len(answer) + 1))
    return row


def _checked(messages: Any, where: str) -> list[dict[str, str]]:
    if not isinstance(messages, list) or not all(
        isinstance(m, dict) and isinstance(m.get("content"), str) and m.get("role") in ("system", "user", "assistant")
        for m in messages
    ):
        raise InvalidInput(f"{where}: every message needs a 'role' (system, user or assistant) and 'content' as text.")
    roles = [m["role"] for m in messages]
    if "assistant" not in roles or "user" not in roles[: roles.index("assistant")]:
        raise InvalidInput(
            f"{where} has the roles {', '.join(roles) or 'of nobody'}: expected a user and then an assistant to learn from."
        )
    if any(a == b == "assistant" for a, b in pairwise(roles)):
        raise InvalidInput(f"{where} has two answers in a row: expected something said between them.")
    return messages


def episodes(source: Path, tokenizer: Any, top: float, predicted: bool) -> list[Row]:
    """Rows of the best episodes of a run: of each task the share `top`, distinct, with a reward above 0.

    Rewards are those of the execution; with `predicted` also calibrated ones.
    """
    directory = RunDirectory(source if source.is_dir() else source.parent)
    _check_tokenizer(directory, tokenizer)
    by_task: dict[str, dict[str, tuple[float, list[Row]]]] = defaultdict(dict)
    for record in directory.read("rollouts.jsonl"):
        if "rows" not in record:
            raise InvalidInput(
                f"{directory.path / 'rollouts.jsonl'} has no tokens (it is of an earlier release): train that run again."
            )
        if record["anchored"] or predicted:
            key = json.dumps([row["ids"] for row in record["rows"]])
            by_task[record["task"]][key] = (record["reward"] or 0.0, [_row(row) for row in record["rows"]])
    best: list[tuple[float, list[Row]]] = []
    for found in by_task.values():
        ranked = sorted(found.values(), key=lambda entry: -entry[0])[: math.ceil(top * len(found))]
        best += [entry for entry in ranked if entry[0] > 0]
    if not best:
        raise InvalidInput(
            f"{directory.path} has no {'' if predicted else 'executed '}episode with a reward above 0 to learn from"
            f"{'.' if predicted else ': train longer, or take predicted ones too with --predicted.'}"
        )
    return [row for _, rows in best for row in rows]


def _row(record: Mapping[str, Any]) -> Row:
    marks = [False] * len(record["ids"])
    for begin, end in record["sampled"]:
        marks[begin:end] = [True] * (end - begin)
    return Row(record["ids"], marks, [0.0] * len(marks))


def _check_tokenizer(directory: RunDirectory, tokenizer: Any) -> None:
    """Ids of another tokenizer would be other words."""
    if not directory.has_run:
        raise InvalidInput(
            f"{directory.path} holds no run: expected a directory of `wmrl train`, or a JSONL file of conversations."
        )
    from transformers import AutoTokenizer

    config = load_config(directory.config_file)
    if config.agent.name == "vla":
        raise InvalidInput(f"{directory.path} holds a robot's run: its action codes are no words of a language model.")
    own = model_path(config.policy.model)
    if not (own / "tokenizer_config.json").is_file():
        return  # the run's model is gone; its ids can only be taken at their word
    if AutoTokenizer.from_pretrained(own, local_files_only=True).get_vocab() != tokenizer.get_vocab():
        raise InvalidInput(
            f"{directory.path} recorded tokens of another tokenizer (that of {own}): fine-tune that model, or one made from it."
        )


# -- model ---------------------------------------------------------------------------------------------------------------
def _with_adapters(model: Any, lora: LoraConfig) -> Any:
    import peft

    settings = peft.LoraConfig(
        r=lora.r, lora_alpha=lora.alpha, lora_dropout=lora.dropout, target_modules=lora.target_modules, task_type="CAUSAL_LM"
    )
    return peft.get_peft_model(model, settings).eval()


def _check_same(config: SftConfig, path: Path) -> None:
    """A fine-tuning is resumed with its own settings; only the number of steps may grow."""
    theirs = yaml.safe_load((path / SETTINGS).read_text(encoding="utf-8"))
    free = ("steps", "save_every", "device", "tokens_per_micro_batch")
    differ = [key for key, value in config.model_dump().items() if key not in free and theirs.get(key) != value]
    if differ:
        raise InvalidInput(
            f"{path} was made with {differ[0]}={theirs.get(differ[0])!r}, now {config.model_dump()[differ[0]]!r}: resume with "
            f"the same settings."
        )
