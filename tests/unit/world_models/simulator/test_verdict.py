import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wmrl_envs.world_models.simulator.verdict import json_schema, parse

READABLE = {
    "plain": '{"reason": "r", "verdict": "fail", "confidence": 0.9, "error_type": "KeyError", "error_line": 3, "env_feedback": "x"}',
    "fenced": 'Here it is:\n```json\n{"verdict": "fail", "confidence": 0.9, "error_type": "KeyError", "error_line": 3}\n```\nDone.',
    "trailing comma": '{"verdict": "fail", "confidence": 0.9, "error_type": "KeyError", "error_line": "3",}',
    "python": "{'verdict': 'FAIL', 'confidence': 0.9, 'error_type': 'KeyError', 'error_line': 3, 'env_feedback': None}",
    "percent": '{"verdict": "Fail", "confidence": "90%", "error_type": "KeyError", "error_line": "line 3"}',
    "hundred": '{"verdict": "failed", "confidence": 90, "error_type": "KeyError", "error_line": 3.0}',
    "cut off": '{"reason": "a long reason", "verdict": "fail", "confidence": 0.9, "error_type": "KeyError", "error_line": 3, "env_feed',
    "thinking": '<think>{"verdict": "pass"}</think>{"verdict": "fail", "confidence": 0.9, "error_type": "KeyError", "error_line": 3}',
    "other braces": 'a {"x": 1} b {"verdict": "fail", "confidence": 0.9, "error_type": "KeyError", "error_line": 3}',
    "newline in a string": '{"verdict": "fail", "confidence": 0.9, "error_type": "KeyError", "error_line": 3, "reason": "a\nb {"}',
}


@pytest.mark.parametrize("form", READABLE)
def test_verdicts_are_read_in_many_forms(form):
    verdict = parse(READABLE[form])
    assert (verdict.verdict, verdict.confidence, verdict.error_type, verdict.error_line) == ("fail", 0.9, "KeyError", 3)


@pytest.mark.parametrize("text", ["", "It runs.", '{"confidence": 1}', '{"verdict": "maybe"}', "{{{{", "[1, 2]", "\x00\xff"])
def test_what_is_no_verdict_is_none(text):
    assert parse(text) is None


def test_numbers_out_of_range_are_clamped_or_dropped():
    verdict = parse('{"verdict": "pass", "confidence": -3, "score": 1e99, "error_line": -4}')
    assert (verdict.confidence, verdict.score, verdict.error_line) == (0.0, None, None)


@given(st.text(max_size=300))
def test_no_answer_raises(text):
    parse(text)
    parse('{"verdict": "fail", "error_line": ' + text)


def test_the_schema_asks_for_bounded_numbers_and_not_for_our_own_field():
    schema = json_schema()
    assert schema["properties"]["confidence"]["maximum"] == 1.0
    assert "parsed" not in schema["properties"]
    assert set(schema["required"]) <= set(schema["properties"])
    kinds = [kind for field in schema["properties"].values() for kind in field.get("anyOf", [field])]
    longest = sum(kind["maxLength"] for kind in kinds if kind["type"] == "string" and "enum" not in kind)
    assert longest < 1000  # characters: the object closes within 1024 tokens


FAIL = '{"verdict": "fail", "confidence": 0.9, "error_type": "KeyError", "error_line": 3}'


@pytest.mark.parametrize(
    "text",
    [
        '{"verdict": "pass"}\nOn reflection:\n' + FAIL,
        "\ufeff" + FAIL + "<|im_end|>",
        FAIL[:-1] + ', "env_feedback": "a </think> in the text"}',
        "an opened thought {x}</think>" + FAIL,
        "<think>" + '{"verdict": "pass"}' + "</think>" + FAIL,
        '<tool_call>{"name": "verdict", "arguments": ' + FAIL + "}</tool_call>",
        json.dumps({"tool_calls": [], "function": {"arguments": FAIL}}),
        FAIL + "\n<think>was that right",
        "Plan:\r```json\r" + FAIL + "\r```",
    ],
)
def test_the_last_object_that_is_a_verdict_counts_however_it_is_wrapped(text):
    verdict = parse(text)
    assert (verdict.verdict, verdict.confidence, verdict.error_type, verdict.error_line) == ("fail", 0.9, "KeyError", 3)


def test_a_thought_that_never_ends_holds_no_verdict():
    assert parse('<think>perhaps {"verdict": "pass"} but then') is None
