"""vLLM in this process, with the learner's weights loaded after every update.

Written against vLLM's public calls (`LLM.generate`, `collective_rpc("reload_weights")`, `reset_prefix_cache`), which were tried
on vLLM's CPU build; `make test-vllm` runs this module there. It has not been run on a GPU.

A head that shares the embeddings' weights (SmolLM2, small Qwen) needs one step more: no tensor of a reload has its name, so
vLLM leaves it alone, and on a CPU its matrix product works on a packed copy of the old weights. `update_weights` packs it
again.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from wmrl_envs.engine import Generation, Prompt, Sampling
from wmrl_envs.errors import InfrastructureError, InvalidInput, MissingExtra
from wmrl_train.engines.encode import encode


class VllmEngine:
    """Samples with vLLM; `update_weights` reloads the weights in place and drops the prefix cache, which they invalidate.

    `max_context` is the longest prompt and completion together; `statistics` counts the tokens of prompts and how many of them
    the prefix cache had.

    Args:
        model: a model directory.
        options: of `vllm.LLM`. `logprobs_mode="processed_logprobs"` is set, so that log-probabilities include the temperature.
    """

    def __init__(self, model: str, **options: Any):
        # Weights are handed over as tensors, which needs the engine's core in this process. vLLM reads this when it is
        # imported.
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        try:
            from vllm import LLM
        except ImportError:
            raise MissingExtra("vllm", "vllm", "policy.engine=vllm") from None
        self._llm: Any = LLM(model=model, **({"enable_prefix_caching": True, "logprobs_mode": "processed_logprobs"} | options))
        self.tokenizer = self._llm.get_tokenizer()
        self.max_context: int = self._llm.llm_engine.model_config.max_model_len
        self.version = 0
        self.statistics: Counter[str] = Counter()
        self._lock = threading.Lock()  # vllm.LLM serves one call at a time

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling, seeds: Sequence[int] | None = None) -> list[Generation]:
        """One completion a prompt, in order; a prompt is a list of ids or of chat messages."""
        if seeds is not None and len(seeds) != len(prompts):
            raise InvalidInput(f"generate() got {len(prompts)} prompts and {len(seeds)} seeds; expected one seed a prompt.")
        chosen = list(seeds) if seeds is not None else [sampling.seed] * len(prompts)
        inputs = [{"prompt_token_ids": encode(prompt, self.tokenizer, self.max_context)} for prompt in prompts]
        try:
            with self._lock:
                outputs = self._llm.generate(inputs, [self._parameters(sampling, seed) for seed in chosen], use_tqdm=False)
        except Exception as error:
            raise InfrastructureError(f"vLLM failed: {error}") from error
        self.statistics["prompt_tokens"] += sum(len(output.prompt_token_ids) for output in outputs)
        self.statistics["cached_tokens"] += sum(output.num_cached_tokens or 0 for output in outputs)
        return [self._read(output.outputs[0]) for output in outputs]

    def update_weights(self, weights: Iterable[tuple[str, Any]] = ()) -> None:
        """Load named tensors, all of the model's, into the running engine."""
        try:
            with self._lock:
                self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": iter(weights)})
                if getattr(self._llm.llm_engine.model_config.hf_text_config, "tie_word_embeddings", False):
                    self._llm.apply_model(_pack_output_head)
                self._llm.reset_prefix_cache()
        except Exception as error:
            raise InfrastructureError(f"vLLM did not take the new weights: {error}") from error
        self.version += 1

    def forget_prefixes(self) -> None:
        """Empty the prefix cache."""
        with self._lock:
            self._llm.reset_prefix_cache()

    def close(self) -> None:
        self._llm = None

    def _parameters(self, sampling: Sampling, seed: int | None) -> Any:
        from vllm import SamplingParams

        structured: dict[str, Any] = {}
        if sampling.schema is not None:
            from vllm.sampling_params import StructuredOutputsParams

            structured["structured_outputs"] = StructuredOutputsParams(json=dict(sampling.schema))
        return SamplingParams(
            temperature=sampling.temperature, top_p=sampling.top_p, max_tokens=sampling.max_new_tokens, logprobs=0,
            stop_token_ids=list(sampling.stop_ids) or None, ignore_eos=bool(sampling.stop_ids), skip_special_tokens=False,
            seed=None if seed is None else seed % 2**31, **structured,
        )  # fmt: skip

    def _read(self, output: Any) -> Generation:
        ids = tuple(int(i) for i in output.token_ids)
        logprobs = tuple(float(position[i].logprob) for i, position in zip(ids, output.logprobs or (), strict=False))
        return Generation(ids, logprobs, output.text, "length" if output.finish_reason == "length" else "stop")


def _pack_output_head(model: Any) -> None:
    """Prepare the output head for its kernel from the weights it now shares with the embeddings."""
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

    for module in model.modules():
        if isinstance(module, ParallelLMHead):
            module.quant_method.process_weights_after_loading(module)
