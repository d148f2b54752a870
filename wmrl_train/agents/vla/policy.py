"""`VLAPolicy`: what turns observations of `LIBERO-Long-v0` into chunks of actions: network, quantizer, normaliser,
tokenizer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from wmrl_envs.envs.libero_long import Orientation, check_orientation
from wmrl_envs.errors import InvalidInput
from wmrl_train.agents.vla.actions import ActionNormalizer, binary_gripper, prompt_text
from wmrl_train.agents.vla.model import HashTokenizer, MiniVLA, MiniVLAConfig
from wmrl_train.agents.vla.vision import ViTConfig
from wmrl_train.agents.vla.vq import ResidualVQ

Observation = Mapping[str, Any]


@dataclass
class VLAPolicy:
    """A policy over action codes.

    Attributes:
        tokenizer: text -> ids; `tokenizer(text)` returns a list of ids or a mapping with "input_ids".
        execute_horizon: actions of a chunk that are executed before the next look, 1 to the quantizer's horizon.
        orientation: of the pictures it was trained on; observations must come in it.
        inverted_gripper: the gripper's training data was in [0, 1] with 1 open (published MiniVLA checkpoints).
        version: updates since it was loaded.
    """

    model: MiniVLA
    quantizer: ResidualVQ
    normalizer: ActionNormalizer
    tokenizer: Any
    execute_horizon: int = 8
    orientation: Orientation = "vertical"
    inverted_gripper: bool = False
    version: int = 0

    def __post_init__(self) -> None:
        horizon = self.quantizer.config.horizon
        if not isinstance(self.execute_horizon, int) or not 1 <= self.execute_horizon <= horizon:
            raise InvalidInput(f"execute_horizon={self.execute_horizon!r}: expected 1 to {horizon}, the length of a chunk.")
        ours, theirs = self.model.config, self.quantizer.config
        if (ours.groups, ours.codes) != (theirs.groups, theirs.codes):
            raise InvalidInput(
                f"The model has {ours.groups} x {ours.codes} codes and the quantizer {theirs.groups} x {theirs.codes}."
            )
        if len(self.tokenizer) != ours.vocabulary:
            raise InvalidInput(
                f"The tokenizer has {len(self.tokenizer)} ids (extra tokens included), the model expects {ours.vocabulary}."
            )

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def prompt(self, instruction: str) -> list[int]:
        """Ids of the prompt."""
        ids = self.tokenizer(prompt_text(instruction))
        return list(ids["input_ids"] if isinstance(ids, Mapping) or hasattr(ids, "input_ids") else ids)

    def inputs(self, observations: Sequence[Observation]) -> tuple[torch.Tensor, list[list[int]], torch.Tensor | None]:
        """Pictures, prompts and state of a batch, for the model's methods."""
        pictures = torch.from_numpy(np.stack([o["image"] for o in observations])).to(self.device)
        prompts = [self.prompt(o["instruction"]) for o in observations]
        state = None
        if self.model.config.proprioception:
            state = torch.from_numpy(np.stack([o["proprioception"] for o in observations])).to(self.device, torch.float32)
        return pictures, prompts, state

    @torch.no_grad()
    def act(
        self, observations: Sequence[Observation], temperature: float = 1.0, seeds: Sequence[int] | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Actions (n, execute_horizon, 7), the codes (n, groups) they come from and the codes' log-probabilities (n, groups).

        Args:
            observations: n of them, of `LIBERO-Long-v0`, in the orientation of the policy.
            temperature: 0 is greedy.
            seeds: one an observation: what is sampled for it depends on nothing else, however many are looked at together.
        """
        uniforms = None
        if seeds is not None:
            drawn = [np.random.default_rng(seed).random(self.model.config.groups) for seed in seeds]
            uniforms = torch.from_numpy(np.stack(drawn)).to(self.device)
        codes, scores = self.model.sample(*self.inputs(observations), temperature=temperature, uniforms=uniforms)
        return self.actions(codes), codes.cpu().numpy(), scores.cpu().numpy()

    def actions(self, codes: torch.Tensor) -> np.ndarray:
        """Robot actions (n, execute_horizon, 7) of codes (n, groups)."""
        chunk = self.quantizer.decode(codes.to(self.quantizer.codebooks.device)).cpu().numpy()
        return binary_gripper(self.normalizer.restore(chunk), self.inverted_gripper)[:, : self.execute_horizon]

    def __call__(self, observation: Observation) -> np.ndarray:
        """The greedy chunk (execute_horizon, 7) for one observation."""
        return self.act([observation], temperature=0.0)[0][0]

    def update_weights(self, weights: Iterable[tuple[str, Any]] = ()) -> None:
        """The weights were trained in place: count it (for a trainer, which asks this of whatever samples)."""
        self.version += 1

    # -- files --------------------------------------------------------------------------------------------------------
    def save(self, folder: str | Path) -> Path:
        """Write the policy to a folder: config.json, model.safetensors, quantizer.safetensors, and tokenizer/ if it has one of
        its own.
        """
        from safetensors.torch import save_model

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        statistics = {name: getattr(self.normalizer, name).tolist() for name in ("q01", "q99", "mask")}
        own = {
            "execute_horizon": self.execute_horizon,
            "orientation": self.orientation,
            "inverted_gripper": self.inverted_gripper,
        }
        (folder / "config.json").write_text(
            json.dumps({"model": asdict(self.model.config), "statistics": statistics, "policy": own}, indent=2)
        )
        save_model(self.model, str(folder / "model.safetensors"))
        self.quantizer.save(folder / "quantizer.safetensors")
        if not isinstance(self.tokenizer, HashTokenizer):
            self.tokenizer.save_pretrained(folder / "tokenizer")
        return folder

    save_pretrained = save  # the name that a checkpoint calls

    def load_weights(self, folder: str | Path) -> None:
        """Take over the network of a policy that was trained from this one (its quantizer never changes).

        Raises:
            InvalidInput: a network of other sizes.
        """
        from safetensors.torch import load_model

        try:
            load_model(self.model, str(Path(folder) / "model.safetensors"))
        except RuntimeError as error:
            raise InvalidInput(
                f"{folder} holds another network than the configured policy ({str(error).splitlines()[0]}): resume with the "
                "policy.model the run was started with."
            ) from None

    @classmethod
    def load(cls, folder: str | Path) -> VLAPolicy:
        """The policy of `save`."""
        from safetensors.torch import load_model

        folder = Path(folder)
        try:
            raw = json.loads((folder / "config.json").read_text())
            sizes, own = dict(raw["model"]), raw["policy"]
            config = MiniVLAConfig(**(sizes | {name: ViTConfig(**sizes[name]) for name in ("dino", "siglip")}))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InvalidInput(
                f"{folder}: no policy ({type(error).__name__}: {error}); expected a folder written by VLAPolicy.save."
            ) from None
        tokenizer: Any = HashTokenizer(config.vocabulary - len(HashTokenizer(0)))
        if (folder / "tokenizer").is_dir():
            from transformers import AutoTokenizer

            tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer", local_files_only=True)
        model = MiniVLA(config)
        load_model(model, str(folder / "model.safetensors"))
        policy = cls(
            model.eval(),
            ResidualVQ.load(folder / "quantizer.safetensors").eval(),
            ActionNormalizer.of(raw["statistics"]),
            tokenizer,
            own["execute_horizon"],
            check_orientation(own["orientation"]),
            own["inverted_gripper"],
        )
        return policy
