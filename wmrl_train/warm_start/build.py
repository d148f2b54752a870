"""Supervised training of the small policy on programs of the grammar; about three minutes on two cores."""

from __future__ import annotations

import json
import logging
import platform
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wmrl_envs.errors import InvalidInput
from wmrl_train.agents.brief import Brief, again, prompt
from wmrl_train.warm_start.grammar import write_program
from wmrl_train.warm_start.policy import new_policy, save_policy
from wmrl_train.warm_start.tokenizer import train_tokenizer

if TYPE_CHECKING:
    import torch
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class WarmStartConfig:
    """Settings of the supervised training.

    Attributes:
        steps: optimizer steps. programs: distinct training programs. batch: conversations a step.
        learning_rate: of the matrices; embedding_learning_rate: of everything else; both fall linearly to a tenth.
        broken: share of programs with a mistake.
        anonymous: share of conversations in which the task has no name and columns are known by position only: what
            the policy does on a task it was not trained on. second_turn: share of conversations with two programs.
    """

    steps: int = 1000
    programs: int = 15_000
    batch: int = 16
    learning_rate: float = 6e-3
    embedding_learning_rate: float = 3e-3
    weight_decay: float = 0.05
    vocab_size: int = 1500
    broken: float = 0.15
    anonymous: float = 0.25
    second_turn: float = 0.15
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "programs", "batch"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise InvalidInput(f"{name}={getattr(self, name)!r}: expected a whole number of at least 1.")
        if not isinstance(self.seed, int) or not 0 <= self.seed < 2**63:  # random.Random takes -1 for 1, torch does not
            raise InvalidInput(f"seed={self.seed!r}: expected a whole number of at least 0 (and below 2**63, torch's limit).")


Part = tuple[str, bool]  # text, and whether the policy writes it (else it is given)


def conversations(briefs: Sequence[Brief], config: WarmStartConfig) -> list[list[Part]]:
    """Training conversations, tasks in turn: prompt, program (and perhaps `again`, second program)."""
    rng, result = random.Random(config.seed), []
    for i in range(config.programs):
        brief, known = briefs[i % len(briefs)], rng.random() >= config.anonymous
        program = write_program(brief, f"{config.seed}.{i}", config.broken, by_name=known)
        parts = [(prompt(brief, known), False), (program.code, True)]
        if rng.random() < config.second_turn:
            second = write_program(brief, f"{config.seed}.{i}.2", config.broken, by_name=known)
            parts += [(again(program.fault is not None), False), (second.code, True)]
        result.append(parts)
    return result


def encode(parts: Sequence[Part], tokenizer: PreTrainedTokenizerFast) -> tuple[list[int], list[int]]:
    """Token ids and labels of a conversation; given text has label -100, a written part ends with the end token."""
    ids: list[int] = []
    labels: list[int] = []
    for text, written in parts:
        tokens = tokenizer(text)["input_ids"] + ([tokenizer.eos_token_id] if written else [])
        ids += tokens
        labels += tokens if written else [-100] * len(tokens)
    return ids, labels


def warm_start(
    briefs: Sequence[Brief],
    out: str | Path,
    config: WarmStartConfig | None = None,
    on_step: Callable[[int, float], None] | None = None,
) -> dict[str, Any]:
    """Train tokenizer and policy on the tasks of `briefs` and write the model directory `out`.

    Args:
        briefs: what the policy is told of its tasks.
        out: the model directory; `provenance.json` is written there too.
        config: settings of the training; None: the defaults.
        on_step: called with (step from 1, loss in nats a token) after every step.

    Returns:
        What `provenance.json` in `out` says: settings, versions, tasks, losses, seconds.
    """
    config = config or WarmStartConfig()
    check_writable(out)
    start = time.perf_counter()
    data = conversations(briefs, config)
    texts = (text for parts in data for text, _ in parts)
    tokenizer = train_tokenizer(texts, [brief.task for brief in briefs], config.vocab_size)
    model = new_policy(tokenizer, config.seed)
    losses = _train(model, [encode(parts, tokenizer) for parts in data], config, tokenizer.pad_token_id, on_step)
    save_policy(model, tokenizer, out)
    tail = losses[-50:]
    provenance = {
        "what": "supervised warm start of the small policy on programs of wmrl_train.warm_start.grammar",
        "config": asdict(config),
        "tasks": [brief.task for brief in briefs],
        "parameters": model.num_parameters(),
        "loss": {"first": round(losses[0], 4), "last_50": round(sum(tail) / len(tail), 4)},
        "seconds": round(time.perf_counter() - start, 1),
        "versions": _versions(),
    }
    Path(out, "provenance.json").write_text(json.dumps(provenance, indent=2) + "\n")
    return provenance


def check_writable(out: str | Path) -> None:
    """Make the directory `out`, or raise `InvalidInput` with the reason why a model cannot be written there."""
    try:
        Path(out).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise InvalidInput(f"cannot write a model to {out}: {error.strerror}; give another directory with --out.") from error


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    return {"python": platform.python_version()} | {name: version(name) for name in ("torch", "transformers", "tokenizers")}


def _batches(lengths: Sequence[int], size: int, rng: random.Random) -> Iterator[list[int]]:
    """Endless batches of indices; members of a batch are of similar length, so that little of it is padding."""
    while True:
        order = rng.sample(range(len(lengths)), len(lengths))
        for start in range(0, len(order), size * 16):
            pool = sorted(order[start : start + size * 16], key=lengths.__getitem__)
            batches = [pool[i : i + size] for i in range(0, len(pool), size)]
            rng.shuffle(batches)
            yield from batches


def _optimizers(model: LlamaForCausalLM, config: WarmStartConfig) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers, AdamW for embeddings and norms: a third of the steps AdamW alone needs here."""
    import torch

    matrices = {name: p for name, p in model.named_parameters() if p.ndim == 2 and ".layers." in name}
    rest = [p for name, p in model.named_parameters() if name not in matrices]
    return [
        torch.optim.Muon(
            list(matrices.values()),
            lr=config.learning_rate,
            weight_decay=config.weight_decay,
            adjust_lr_fn="match_rms_adamw",
        ),
        torch.optim.AdamW(rest, lr=config.embedding_learning_rate, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def _train(
    model: LlamaForCausalLM,
    examples: Sequence[tuple[list[int], list[int]]],
    config: WarmStartConfig,
    pad_id: int,
    on_step: Callable[[int, float], None] | None,
) -> list[float]:
    import torch

    optimizers = _optimizers(model, config)
    schedules = [torch.optim.lr_scheduler.LinearLR(o, 1.0, 0.1, total_iters=config.steps) for o in optimizers]
    batches = _batches([len(ids) for ids, _ in examples], config.batch, random.Random(config.seed))
    losses = []
    model.train()
    for step in range(1, config.steps + 1):
        chosen = [examples[i] for i in next(batches)]
        longest = max(len(ids) for ids, _ in chosen)
        ids = torch.tensor([ids + [pad_id] * (longest - len(ids)) for ids, _ in chosen])
        labels = torch.tensor([labels + [-100] * (longest - len(labels)) for _, labels in chosen])
        loss = model(input_ids=ids, attention_mask=(ids != pad_id).long(), labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer, schedule in zip(optimizers, schedules, strict=True):
            optimizer.step()
            schedule.step()
        model.zero_grad(set_to_none=True)
        losses.append(loss.item())
        if on_step is not None:
            on_step(step, losses[-1])
        if step % 100 == 0:
            logger.info("warm start: step %d of %d, loss %.3f", step, config.steps, losses[-1])
    model.eval()
    return losses
