"""An engine behind any OpenAI-compatible server (vLLM, SGLang, llama.cpp, a hosted model).

Token ids go to `/completions`, chat messages to `/chat/completions`. With a server that returns token ids (vLLM's
`return_token_ids`) a completion keeps them; otherwise its text is encoded with `tokenizer`, and without one a
completion has text but no ids: good for a world model or an evaluation, not for training.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from wmrl_envs.engine import Generation, Prompt, Sampling
from wmrl_envs.errors import InfrastructureError, InvalidInput
from wmrl_envs.servers import NoAnswer, Refusal, ask, checked_url, server_retries
from wmrl_envs.text import clean
from wmrl_train.config.imported import reason

log = logging.getLogger(__name__)
EXAMPLE = "http://127.0.0.1:8000/v1"  # of an address


class _Transient(InfrastructureError):
    """Worth another attempt (no connection, a timeout, status 429 or 5xx, no JSON); an infrastructure failure once attempts are
    used up.
    """


#: Sampling without filters. What is left out of a request is the model's own generation_config, which need not be neutral.
_NEUTRAL: dict[str, Any] = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}


class OpenAIEngine:
    """Completions from a server.

    Args:
        model: name the server knows the model by.
        base_url: up to and including `/v1`.
        api_key: sent as a bearer token; it never enters a log or an error message.
        tokenizer: for counting and for servers that return no ids; may be None.
        timeout_s: of one request. attempts: in all, with exponential waits up to `max_wait_s` between them.
        concurrency: requests in flight.
        max_context: tokens of prompt and completion together; None asks the server, and leaves it open where that does not say.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str,
        api_key: str | None = None,
        tokenizer: Any = None,
        timeout_s: float = 600.0,
        attempts: int = 5,
        max_wait_s: float = 30.0,
        concurrency: int = 16,
        max_context: int | None = None,
    ):
        for name, value in (("attempts", attempts), ("concurrency", concurrency)):
            if value < 1:
                raise InvalidInput(f"OpenAIEngine({name}={value!r}): expected at least 1.")
        self.model, self.tokenizer, self.version = model, tokenizer, 0
        self._url, self._key = checked_url(base_url, f"OpenAIEngine(base_url={base_url!r})", EXAMPLE), checked_key(api_key)
        self._timeout_s = timeout_s
        self._extended = True  # until the server says that it does not know the keys of `_NEUTRAL`
        self._retry = server_retries(_Transient, attempts, max_wait_s, log)
        self.max_context = max_context or self._served_context()
        self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix="openai-engine")

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling, seeds: Sequence[int] | None = None) -> list[Generation]:
        """One completion a prompt, in order, with at most `concurrency` requests in flight."""
        chosen = list(seeds) if seeds is not None else [sampling.seed] * len(prompts)
        if len(chosen) != len(prompts):
            raise InvalidInput(f"generate() got {len(prompts)} prompts and {len(chosen)} seeds; expected one seed a prompt.")
        return list(self._pool.map(lambda pair: self._one(pair[0], sampling, pair[1]), zip(prompts, chosen, strict=True)))

    def update_weights(self, weights: Iterable[tuple[str, Any]] = ()) -> None:
        """Refused: a plain OpenAI server serves frozen weights."""
        raise InvalidInput(
            "An OpenAI-compatible server cannot take new weights; train with policy.engine=transformers or vllm."
        )

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _one(self, prompt: Prompt, sampling: Sampling, seed: int | None) -> Generation:
        body: dict[str, Any] = {
            "model": self.model,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_new_tokens,
        }
        if self._extended:
            body |= _NEUTRAL
        if seed is not None:
            body["seed"] = int(seed) % 2**31  # servers take 32 bits
        if sampling.stop_ids:
            body["stop_token_ids"] = list(sampling.stop_ids)
        chat = bool(len(prompt)) and isinstance(prompt[0], dict)
        if chat:
            body |= {"messages": list(prompt), "logprobs": True}
            if sampling.schema is not None:
                body["response_format"] = {
                    "type": "json_schema",
                    "json_schema": {"name": "reply", "schema": dict(sampling.schema)},
                }
        else:
            body |= {"prompt": list(prompt), "logprobs": 0, "return_token_ids": True}
        return self._retry(self._ask, "/chat/completions" if chat else "/completions", body, chat)

    def _ask(self, path: str, body: dict[str, Any], chat: bool) -> Generation:
        reply = self._post(path, body)
        try:
            return self._read(reply["choices"][0], chat)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise _Transient(
                f"The server at {self._url} sent a reply that is no completion ({error!r}): {str(reply)[:200]}"
            ) from error

    def _read(self, choice: dict[str, Any], chat: bool) -> Generation:
        text = _text((choice["message"]["content"] if chat else choice["text"]) or "")
        finish = "length" if choice.get("finish_reason") == "length" else "stop"
        recorded = choice.get("logprobs") or {}
        logprobs = [t["logprob"] for t in recorded.get("content") or []] if chat else recorded.get("token_logprobs") or []
        ids = choice.get("token_ids")
        if ids is None:
            ids = self.tokenizer.encode(text, add_special_tokens=False) if self.tokenizer is not None else ()
        if len(logprobs) != len(ids):
            logprobs = []
        scores = tuple(float(p) for p in logprobs)
        if not all(isinstance(i, int) for i in ids) or not all(math.isfinite(p) for p in scores):
            raise ValueError("token ids or log-probabilities that are no numbers")
        return Generation(tuple(ids), scores, text, finish)  # type: ignore[arg-type]

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        headers = bearer(self._key) | {"Content-Type": "application/json"}
        try:
            return ask(self._url + path, json.dumps(body).encode(), headers=headers, timeout_s=self._timeout_s)
        except Refusal as refusal:
            detail = refusal.detail[:500]
            if not refusal.worth_another_attempt and any(key in body and key in detail for key in _NEUTRAL):
                log.warning(
                    "The server at %s knows no %s: sampling is neutral only if it says so itself.",
                    self._url,
                    ", ".join(_NEUTRAL),
                )
                self._extended = False
                return self._post(path, {key: value for key, value in body.items() if key not in _NEUTRAL})
            if refusal.worth_another_attempt:
                raise _Transient(f"The server at {self._url} answered {refusal.status}: {detail}") from None
            hint = " (a shorter context_tokens or rollout.max_context may help)" if "context" in detail else ""
            raise InvalidInput(f"The server at {self._url} refused the request with {refusal.status}: {detail}{hint}") from None
        except NoAnswer as error:
            raise _Transient(f"No usable answer from the server at {self._url}: {error}") from error

    def _served_context(self) -> int | None:
        """Tokens of the model's context, where the server tells it (vLLM does)."""
        try:
            found = {model["id"]: model for model in served_models(self._url, self._key, timeout_s=5)}
        except InfrastructureError:
            return None
        length = found.get(self.model, {}).get("max_model_len")
        return length if isinstance(length, int) and length > 0 else None


def served_models(url: str, key: str | None, timeout_s: float = 30) -> list[dict[str, Any]]:
    """What a server says about its models; each has a name under "id".

    Raises:
        InfrastructureError: no list of models came.
    """
    try:
        models = ask(url.rstrip("/") + "/models", headers=bearer(key), timeout_s=timeout_s)["data"]
        if not all(isinstance(model["id"], str) for model in models):
            raise TypeError("a model's id is no text")
    except (NoAnswer, Refusal, KeyError, TypeError) as error:
        raise InfrastructureError(f"No list of models from {url}: {reason(error)}.") from error
    return list(models)


def bearer(key: str | None) -> dict[str, str]:
    """The header that shows a key."""
    return {"Authorization": f"Bearer {key}"} if key else {}


def checked_key(key: str | None) -> str | None:
    """The key without the line end that reading it from a file leaves; None for an empty one.

    Raises:
        InvalidInput: it cannot be sent in a header. The message does not show it, as that of an HTTP library would.
    """
    key = (key or "").strip()
    if not (key.isascii() and key.isprintable()):
        raise InvalidInput(
            "The API key (OPENAI_API_KEY or api_key; not shown here) holds a line break or a character outside ASCII: "
            "expected the key alone, so set it again."
        )
    return key or None


def _text(content: Any) -> str:
    """Of a reply's content: a string, or parts of which the text ones count."""
    if isinstance(content, list):
        content = "".join(part["text"] for part in content if part.get("type") == "text")
    if not isinstance(content, str):
        raise TypeError(f"content of type {type(content).__name__}")
    return clean(content)
