"""Checkpoints: everything a run needs to go on bit by bit, written so that a kill or a full disk leaves the previous one
intact.

A checkpoint is a directory `step-000012`: `policy/` (what `save_pretrained` writes, so it can be evaluated or trained
on by itself), `optimizer.pt` (tensors only, loaded with `weights_only`), `state.json`. It is written beside its place,
forced to disk and renamed. Nothing in it is a pickle of objects.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import random
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from wmrl_envs.errors import InvalidInput, WmrlError
from wmrl_train import __version__

log = logging.getLogger(__name__)
FORMAT = 2  # raised whenever an older checkpoint can no longer be read
_NAME = re.compile(r"step-(\d{6,})")


class CheckpointError(WmrlError, OSError):
    """A checkpoint could not be written; the previous one is intact."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on disk: its step, what its `state.json` holds, and the files it names, which are as it says."""

    path: Path
    step: int
    state: dict[str, Any]
    files: frozenset[str] = frozenset()

    def file(self, name: str) -> Path:
        """A file of it. Raises `InvalidInput` unless its own list names it: what lies beside is not loaded."""
        if name not in self.files:
            raise InvalidInput(f"{self.path} does not list {name}, so it was not saved with it: nothing is loaded from there.")
        return self.path / name


def save(
    directory: Path,
    step: int,
    *,
    model: Any,
    tokenizer: Any = None,
    optimizer: dict[str, Any],
    state: dict[str, Any],
    keep: int,
) -> Path:
    """Write the checkpoint of `step` atomically, then delete all but the newest `keep`.

    Args:
        directory: `checkpoints/` of the run.
        step: number of the step, which names the checkpoint.
        model: saved by `save_pretrained` (adapters only, for a LoRA policy).
        tokenizer: saved by `save_pretrained`; None for a policy that has its tokenizer within.
        optimizer: tensors and numbers only.
        state: JSON-able; numpy arrays are allowed.
        keep: checkpoints that are kept, with this one.

    Raises:
        CheckpointError: no space, no permission: nothing of this checkpoint is left behind, the older ones are intact.
    """
    final, partial = directory / f"step-{step:06d}", directory / f".saving-{step:06d}"
    bad = _not_finite(model.named_parameters()) if isinstance(model, torch.nn.Module) else None
    if bad is not None:
        raise CheckpointError(
            f"The checkpoint of step {step} was not written: {bad} holds numbers that are not finite. The one before it is "
            "good; go on from there with a lower learning rate."
        )
    try:
        if partial.is_symlink():
            partial.unlink()
        shutil.rmtree(partial, ignore_errors=True)
        (partial / "policy").mkdir(parents=True)
        model.save_pretrained(partial / "policy")
        if tokenizer is not None:
            tokenizer.save_pretrained(partial / "policy")
        torch.save({"optimizer": optimizer, "random": random_state()}, partial / "optimizer.pt")
        encoded = _encode(state)
        envelope = {
            "format": FORMAT,
            "wmrl": __version__,
            "step": step,
            "digests": _digests(partial, encoded),
            "state": encoded,
        }
        (partial / "state.json").write_text(json.dumps(envelope), encoding="utf-8")
        for file in partial.rglob("*"):
            _sync(file)
        _sync(partial)
        if final.exists():  # the same step again, after an interruption
            shutil.rmtree(final)
        partial.rename(final)
        _sync(directory)
    except (OSError, RuntimeError, SafetensorError) as error:  # torch and safetensors have their own errors for a failed write
        shutil.rmtree(partial, ignore_errors=True)
        previous = checkpoints(directory)
        left = f"the previous one, {previous[-1].name}, is intact" if previous else "there is no earlier one"
        raise CheckpointError(
            f"The checkpoint of step {step} could not be written in {directory} ({error}); {left}."
        ) from error
    for old in checkpoints(directory)[:-keep]:
        shutil.rmtree(old, ignore_errors=True)
    return final


def _not_finite(tensors: Iterable[tuple[str, Any]]) -> str | None:
    """The first tensor with NaN or an infinite number in it."""
    return next((name for name, t in tensors if t.is_floating_point() and not bool(torch.isfinite(t).all())), None)


def checkpoints(directory: Path) -> list[Path]:
    """The finished checkpoints, oldest first."""
    found = [(int(match[1]), path) for path in directory.glob("step-*") if (match := _NAME.fullmatch(path.name))]
    return [path for _, path in sorted(found)]


def latest(directory: Path) -> Checkpoint:
    """The newest checkpoint that can be read; a damaged one is skipped with a warning.

    Raises:
        InvalidInput: there is none, all are damaged, or it was written in another format (the message says which).
    """
    found = checkpoints(directory)
    problems = []
    for path in reversed(found):
        try:
            envelope = json.loads((path / "state.json").read_text(encoding="utf-8"))
            if envelope["format"] != FORMAT:
                raise InvalidInput(
                    f"{path} was written by wmrl {envelope.get('wmrl', 'unknown')} in checkpoint format {envelope['format']}, "
                    f"and this is wmrl {__version__} with format {FORMAT}: resume it with that version, or start a new run "
                    "from its policy/."
                )
            now = _digests(path, envelope["state"])
            for name, digest in envelope["digests"].items():
                if name not in now:
                    raise FileNotFoundError(f"{name} is missing")
                if now[name] != digest:
                    raise ValueError(f"{name} is not as it was written")
            files = frozenset(envelope["digests"].keys() - {"state"})
            return Checkpoint(path, int(envelope["step"]), _decode(envelope["state"]), files)
        except InvalidInput:
            raise
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            problems.append(f"{path.name}: {what}")
            log.warning("Checkpoint %s is damaged (%s) and left out.", path, what)
    if problems:
        raise InvalidInput(
            f"Every checkpoint in {directory} is damaged ({'; '.join(problems)}): nothing to resume; start anew with --again, "
            f"which sets this run aside."
        )
    raise InvalidInput(
        f"No checkpoint in {directory}: the run ended before its first one was due, so start it again without --resume."
    )


@runtime_checkable
class LoadsItself(Protocol):
    """A policy that is more than a transformers model: it reads what its `save_pretrained` wrote."""

    def load_weights(self, folder: Path) -> None: ...


def load_weights(checkpoint: Checkpoint, model: Any) -> None:
    """Copy the saved policy (or its adapters) into `model`."""
    folder = checkpoint.path / "policy"
    if isinstance(model, LoadsItself):
        model.load_weights(folder)
        return
    if hasattr(model, "disable_adapter"):
        from peft import set_peft_model_state_dict

        set_peft_model_state_dict(model, load_file(checkpoint.file("policy/adapter_model.safetensors")))
        return
    weights: dict[str, Any] = {}
    for name in sorted(name for name in checkpoint.files if fnmatchcase(name, "policy/*.safetensors")):
        weights |= load_file(checkpoint.file(name))
    bad = _not_finite(weights.items())
    if bad is not None:
        raise InvalidInput(
            f"{folder}: {bad} holds numbers that are not finite; remove this checkpoint and resume from the one before it."
        )
    result = model.load_state_dict(weights, strict=False)
    tied = set(getattr(model, "all_tied_weights_keys", None) or getattr(model, "_tied_weights_keys", None) or ())
    missing = [key for key in result.missing_keys if key not in tied]
    if missing or result.unexpected_keys:
        raise InvalidInput(
            f"{folder} holds another model than the configured one (such as {(missing or result.unexpected_keys)[0]!r}): "
            "resume with the policy.model the run was started with."
        )


def load_optimizer(checkpoint: Checkpoint) -> dict[str, Any]:
    """The optimizer's state; also sets the random generators of Python, numpy and torch."""
    data = torch.load(checkpoint.file("optimizer.pt"), weights_only=True, map_location="cpu")
    set_random_state(data["random"])
    return data["optimizer"]


def random_state() -> dict[str, Any]:
    """The states of all global generators, as tensors and numbers."""
    version, internal, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state()  # the legacy global one: libraries still use it
    state = {
        "python": [version, list(internal), gauss],
        "numpy": [str(name), torch.from_numpy(np.asarray(keys).astype(np.int64)), int(position), int(has_gauss), float(cached)],
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def set_random_state(state: dict[str, Any]) -> None:
    """Restore what `random_state` took."""
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])


def _digests(directory: Path, encoded: Any) -> dict[str, str]:
    """SHA-256 of the encoded state and of every file of a checkpoint but the one that holds these digests; a link is no
    file.
    """
    digests = {"state": hashlib.sha256(json.dumps(encoded).encode()).hexdigest()}
    for path in sorted(directory.rglob("*")):
        if path.is_file() and not path.is_symlink() and path.name != "state.json":
            with path.open("rb") as file:
                digests[path.relative_to(directory).as_posix()] = hashlib.file_digest(file, "sha256").hexdigest()
    return digests


def _sync(path: Path) -> None:
    """Force a file or a directory to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _encode(value: Any) -> Any:
    """JSON with numpy arrays and tuple-free containers; floats keep every bit (repr), NaN and infinities included."""
    if isinstance(value, np.ndarray):
        return {"__array__": value.tolist(), "dtype": str(value.dtype), "shape": list(value.shape)}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            return {"__items__": [[_encode(k), _encode(v)] for k, v in value.items()]}
        return {key: _encode(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_encode(item) for item in value]
    return value


def _decode(value: Any) -> Any:
    if isinstance(value, dict):
        if "__array__" in value:
            return np.array(value["__array__"], dtype=value["dtype"]).reshape(value["shape"])
        if "__items__" in value:
            return {_decode(k): _decode(v) for k, v in value["__items__"]}
        return {key: _decode(item) for key, item in value.items()}
    return [_decode(item) for item in value] if isinstance(value, list) else value
