"""What a check answers: the record, its JSON schema, and a parser for models that do not quite write JSON."""

from __future__ import annotations

import ast
import json
import re
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from wmrl_envs.text import clean, plain, without_thoughts

MAX_TEXT = 4000  # characters kept of any text of a verdict
# Characters a schema-bound answer may give to a text: a weak model that rambles would else reach the end of its tokens before
# that
# of the object, and the score comes last.
SCHEMA_TEXT = {"reason": 300, "error_type": 60, "env_feedback": 600}


class Verdict(BaseModel):
    """Answer of one check. `parsed` is False if the model's text could not be read: then it is a pass with confidence 0."""

    model_config = ConfigDict(extra="ignore")

    reason: str = ""
    verdict: Literal["pass", "fail"]
    confidence: float = Field(default=0.5, ge=0.0, le=1.0)
    error_type: str | None = None
    error_line: int | None = Field(default=None, ge=1)
    env_feedback: str | None = None
    score: float | None = Field(default=None, ge=0.0, le=1.0)
    parsed: bool = Field(default=True, exclude=True)

    @field_validator("verdict", mode="before")
    @classmethod
    def _word(cls, value: Any) -> Any:
        text = str(value).strip().strip("<>\"'.").lower()
        return {"passed": "pass", "failed": "fail", "true": "pass", "false": "fail", "ok": "pass", "error": "fail"}.get(
            text, text
        )

    @field_validator("confidence", "score", mode="before")
    @classmethod
    def _fraction(cls, value: Any, info: Any) -> Any:
        number = _number(value)
        if number is None:
            return 0.5 if info.field_name == "confidence" else None
        if (isinstance(value, str) and "%" in value) or (1.0 < number <= 100.0 and number > 1.5):
            number /= 100.0
        return min(max(number, 0.0), 1.0)

    @field_validator("error_line", mode="before")
    @classmethod
    def _line(cls, value: Any) -> Any:
        number = _number(value)
        return int(number) if number is not None and 1 <= number < 10**7 else None

    @field_validator("error_type", "env_feedback", mode="before")
    @classmethod
    def _text(cls, value: Any) -> Any:
        text = "" if value is None else clean(str(value)).strip()
        return None if text.lower() in ("", "null", "none", "n/a") else text[:MAX_TEXT]

    @field_validator("reason", mode="before")
    @classmethod
    def _reason(cls, value: Any) -> str:
        return "" if value is None else clean(str(value))[:MAX_TEXT]


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, (int, float)):
        return float(value) if value == value and abs(value) < 1e12 else None
    found = re.search(r"-?\d{1,12}(?:\.\d{1,12})?", str(value)[:40])
    return float(found.group()) if found else None


def unreadable() -> Verdict:
    """The verdict of a check whose answer could not be read: a pass with no confidence."""
    return Verdict(verdict="pass", confidence=0.0, parsed=False)


def json_schema() -> dict[str, Any]:
    """The schema for engines that decode under one."""
    schema = Verdict.model_json_schema()
    schema["properties"].pop("parsed", None)
    for name, longest in SCHEMA_TEXT.items():
        field = schema["properties"][name]
        next(kind for kind in field.get("anyOf", [field]) if kind["type"] == "string")["maxLength"] = longest
    schema["required"] = ["reason", "verdict", "confidence"]
    schema["additionalProperties"] = False
    return schema


def parse(text: str) -> Verdict | None:
    r"""The verdict in a model's answer, or None: the last object that is one.

    Accepts prose, fences and tool calls around the object, thoughts before it (whose end counts outside objects only), Python
    literals, trailing commas and an object that was cut off.

    >>> parse('Sure! ```json\n{"verdict": "FAIL", "confidence": "90%", "error_line": "14",}\n```').confidence
    0.9
    >>> parse("I think it runs.") is None
    True
    """
    text = plain(text)[:200_000]
    objects = _objects(text)
    spans = [span for span in objects if _verdict(text[slice(*span)]) is not None]
    said = without_thoughts(text, spans)
    for start, end in reversed(_objects(said) if said != text else spans):
        if (verdict := _verdict(said[start:end])) is not None:
            return verdict
    return _fields(said)


def _verdict(candidate: str) -> Verdict | None:
    """The verdict that an object is, or holds (the arguments of a tool call)."""
    for read in (_strict, _literal, _repaired):
        for value in _within(read(candidate)):
            try:
                return Verdict.model_validate({k: v for k, v in value.items() if k != "parsed"})
            except ValidationError:
                continue
    return None


def _within(value: Any, depth: int = 0) -> list[dict[str, Any]]:
    """The objects with a verdict in what was read, outermost first."""
    if isinstance(value, str) and depth and value.lstrip().startswith("{"):
        value = _strict(value)
    if not isinstance(value, dict) or depth > 4:
        return []
    if "verdict" in value:
        return [value]
    return [found for inner in value.values() for found in _within(inner, depth + 1)]


def _objects(text: str) -> list[tuple[int, int]]:
    """(start, end) of balanced `{...}` parts, outermost, the last twenty in order; braces inside strings do not count."""
    found, depth, start, quote, escaped = [], 0, 0, "", False
    for i, character in enumerate(text):
        if quote:
            if escaped:
                escaped = False
            elif character == "\\":
                escaped = True
            elif character == quote:
                quote = ""
        elif character == '"' and depth:
            quote = character
        elif character == "{":
            start = i if depth == 0 else start
            depth += 1
        elif character == "}" and depth:
            depth -= 1
            if depth == 0:
                found.append((start, i + 1))
    return found[-20:]


def _strict(text: str) -> Any:
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(re.sub(r"\bnull\b", "None", re.sub(r"\btrue\b", "True", re.sub(r"\bfalse\b", "False", text))))
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return None


def _repaired(text: str) -> Any:
    return _strict(re.sub(r",\s*([}\]])", r"\1", text).replace("\u201c", '"').replace("\u201d", '"'))


_FIELD = r"[\"']?{name}[\"']?\s*[:=]\s*"


def _fields(text: str) -> Verdict | None:
    """Fields picked out of an object that never closes (the answer hit its length limit)."""
    word = re.search(_FIELD.format(name="verdict") + r"[\"']?(pass|fail)\b", text, re.IGNORECASE)
    if word is None:
        return None
    values: dict[str, Any] = {"verdict": word.group(1)}
    for name in ("confidence", "score", "error_line"):
        number = re.search(_FIELD.format(name=name) + r"[\"']?(\d{1,9}(?:\.\d{1,9})?%?)", text, re.IGNORECASE)
        if number:
            values[name] = number.group(1)
    kind = re.search(_FIELD.format(name="error_type") + r"[\"'](\w{1,80})", text)
    if kind:
        values["error_type"] = kind.group(1)
    return Verdict.model_validate(values)
