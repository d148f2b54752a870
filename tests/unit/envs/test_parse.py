import ast
import json

import pytest

from wmrl_envs.envs.parse import NO_PROGRAM, extract_code, solution

CODE = "import os\nprint(os.environ['DATA_DIR'])\n"


@pytest.mark.parametrize(
    "answer",
    [
        f"Analysis: fit a line.\n```python\n{CODE}```\nThat is all.",
        f"```py\n{CODE}```",
        f"```Python3\n{CODE}```",
        f"``` python\n{CODE}```",
        f"```{{python}}\n{CODE}```",
        f"```\n{CODE}```",
        f"~~~python\n{CODE}~~~",
        f"````python\n{CODE}````",
        "1. step\n   ```python\n   import os\n   print(os.environ['DATA_DIR'])\n   ```",
        "Before\r\n```python\r\nimport os\r\nprint(os.environ['DATA_DIR'])\r\n```\r\n",
        f"<think>maybe ```python\nbad(\n``` no</think>\nGood.\n```python\n{CODE}```",
        f"First a sketch:\n```python\nsketch()\n```\nNow the script:\n```python\n{CODE}```",
        f"Install:\n```bash\npip install x\n```\n```python\n{CODE}```\nRun:\n```bash\npython s.py\n```",
        f"Output will be\n```\n0.5\n```\nfrom\n```python\n{CODE}```",
    ],
)
def test_the_python_block_is_found(answer):
    assert extract_code(answer) == CODE


def test_text_without_a_fence_is_the_program():
    assert extract_code(CODE) == CODE


def test_an_answer_cut_inside_its_block_yields_what_is_there():
    assert extract_code("Plan.\n```python\nimport os\nprint(") == "import os\nprint(\n"


def test_fences_inside_strings_do_not_end_or_open_a_block():
    inner = 's = """\n  text ``` more\n"""\nprint(s)\n'
    assert extract_code(f"```python\n{inner}```") == inner
    plain = 's = """\n```python\nnot_this()\n```\n"""\nprint(s)\n'
    assert extract_code(plain) == plain


def test_a_longer_fence_may_hold_a_shorter_one():
    inner = 'doc = """\n```\nexample\n```\n"""\n'
    assert extract_code(f"See\n````python\n{inner}````") == inner


@pytest.mark.parametrize("answer", ["", "  \n", "```python\n```", "Plan\n```bash\nls\n```"])
def test_an_answer_without_a_program_is_a_problem_and_no_error(answer):
    found = solution(answer, "titanic", 1000)
    assert found.code == ""
    assert "python block" in found.problem


def test_a_too_long_answer_and_half_a_surrogate_pair_are_problems():
    assert "at most 10 " in solution("x" * 11, "t", 10).problem
    assert "U+D800" in solution("s = '\ud800'", "t", 100).problem
    assert solution("s = 'λ → 1'", "t", 100).problem is None


@pytest.mark.parametrize(
    "answer", ["```" * 50_000, "(" * 100_000 + "```", "`" * 100_000, "\x00```\n\x00", "```python\n" * 3000]
)
def test_hostile_answers_are_parsed_quickly_and_without_error(answer):
    assert isinstance(extract_code(answer), str)


FENCE = "`" * 3


@pytest.mark.parametrize(
    "answer",
    [
        f"{FENCE}python:train.py\n{CODE}{FENCE}",
        f"{FENCE}python3.11\n{CODE}{FENCE}",
        f'{FENCE}python title="a.py"\n{CODE}{FENCE}',
        f"{FENCE}main.py\n{CODE}{FENCE}",
        f"{FENCE}tool_code\n{CODE}{FENCE}",
        f"{FENCE}code\n{CODE}{FENCE}",
        f"{FENCE}whatever\n{CODE}{FENCE}",
        f"Sure: {FENCE}python\n{CODE}{FENCE} Good luck.",
        f"Here it is:{FENCE}\n{CODE}{FENCE}",
        f"{FENCE}python\n{CODE.rstrip()}{FENCE}\nThat is all.",
        f"{FENCE}python\n{CODE}{FENCE} runs in a second.\nMore words.",
        f"- {FENCE}python\n  import os\n  print(os.environ['DATA_DIR'])\n  {FENCE}",
        f"2) {FENCE}python\n   import os\n   print(os.environ['DATA_DIR'])\n   {FENCE}",
        f"> {FENCE}python\n> import os\n> print(os.environ['DATA_DIR'])\n> {FENCE}\n> done",
        f">{FENCE}\n>import os\n>print(os.environ['DATA_DIR'])\n>{FENCE}",
        f"\ufeff{FENCE}python\n{CODE}{FENCE}",
        f"Plan\n\u200b{FENCE}python\n{CODE}{FENCE}",
        f"\u00a0\u00a0{FENCE}python\n{CODE}{FENCE}",
        f"Plan\r{FENCE}python\r" + CODE.replace("\n", "\r") + FENCE,
        f"{FENCE}python\n{CODE}{FENCE}<|im_end|>",
        f"{FENCE}python\n{CODE}<|endoftext|>",
        f"{FENCE}python\n{CODE}{FENCE}</s>\n<|eot_id|>",
        f"{FENCE}python\n{CODE}{FENCE}\n{FENCE}python\n{FENCE}",
        f"{FENCE}python\n{CODE}{FENCE}\n{FENCE}python\n# nothing to change\n{FENCE}",
        f"{FENCE}python\nfirst(\n{FENCE}python\n{CODE}{FENCE}",
        f"{FENCE}python\nfirst()\n{FENCE}python\n{CODE}{FENCE}",
        f"{FENCE}python\n{CODE}{FENCE}\nIt prints\n{FENCE}\n0.5\n{FENCE}",
        f"{FENCE}\n{CODE}{FENCE}\nIt prints\n{FENCE}\n0.5\n{FENCE}",
        f"{FENCE}python\n{CODE}{FENCE}\nbut not\n{FENCE}python\nthis one is broken(\n{FENCE}",
        f"I think </think> here.\n{FENCE}python\n{CODE}{FENCE}",
        f"<think>a {FENCE}python\nunclosed(\n</think>\n{FENCE}python\n{CODE}{FENCE}",
        f"{FENCE}python\n{CODE}{FENCE}\n<think>was that right",
        f"<thinking>no</thinking>{CODE}",
        f"[THINK]no[/THINK]{FENCE}python\n{CODE}{FENCE}",
        f"<|channel|>analysis<|message|>a plan<|end|><|start|>assistant<|channel|>final<|message|>{FENCE}python\n{CODE}{FENCE}<|return|>",
        f"{CODE}{FENCE}\nThat is all.",
        f"{FENCE}{CODE}{FENCE}",
        f"python\n{CODE}",
        f"{FENCE}python\n\u00a0\u00a0import os\n\u00a0\u00a0print(os.environ['DATA_DIR'])\n{FENCE}",
        f"<code>\n{CODE}</code>",
        f"<execute><![CDATA[\n{CODE}]]></execute>",
        f"<function=python>\n<parameter=code>\n{CODE}</parameter>\n</function>",
        f'<invoke name="python"><parameter name="code">{CODE}</parameter></invoke>',
        "<tool_call>" + json.dumps({"name": "python", "arguments": {"code": CODE}}) + "</tool_call>",
        json.dumps({"tool_calls": [{"function": {"name": "run", "arguments": json.dumps({"code": CODE})}}]}),
        f"{FENCE}json\n" + json.dumps({"code": CODE}) + f"\n{FENCE}",
        json.dumps({"code": f"{FENCE}python\n{CODE}{FENCE}"}),
        f"<|python_tag|>{CODE}",
    ],
)
def test_a_complete_program_is_found_in_whatever_it_is_wrapped(answer):
    assert extract_code(answer).strip() == CODE.strip()


@pytest.mark.parametrize(
    "program",
    [
        f"text = '''\n{FENCE}\nnot the end\n{FENCE}\n'''\nprint(text)\n",
        f"text = '''\n{FENCE}python\nf()\n{FENCE}\n'''\nprint(text)\n",
        f"x = 1\n# {FENCE}\nprint(x)\n",
        "text = 'a</think>b'\nprint(text)\n",
        "# <think> is a tag\nprint(1)\n",
    ],
)
def test_marks_inside_a_program_end_nothing(program):
    assert extract_code(f"Plan.\n{FENCE}python\n{program}{FENCE}\nDone.") == program
    assert extract_code(program) == program


@pytest.mark.parametrize(
    "answer",
    [
        "I cannot help with that.",
        f"<think>maybe\n{FENCE}python\nraise SystemExit('draft')\n{FENCE}\nno, wait",
        f"{FENCE}bash\nls\n{FENCE}",
        f"{FENCE}json\n{{}}\n{FENCE}",
        '{"name": "python", "arguments": {}}',
    ],
)
def test_what_cannot_be_read_is_told_what_form_is_wanted(answer):
    assert solution(answer, "titanic", 10_000).problem == NO_PROGRAM


def test_blocks_that_build_on_each_other_can_be_joined():
    answer = (
        f"First:\n{FENCE}python\na = 1\n{FENCE}\nthen\n{FENCE}python\nprint(a)\n{FENCE}\nbroken: {FENCE}python\nf(\n{FENCE}"
    )
    assert extract_code(answer) == "print(a)\n"
    assert extract_code(answer, join_blocks=True) == "a = 1\nprint(a)\n"


def test_a_program_with_a_syntax_error_is_executed_so_that_the_agent_reads_it():
    assert extract_code(f"{FENCE}python\nprint(1\n{FENCE}") == "print(1\n"
    assert extract_code("import os\nprint(1") == "import os\nprint(1"


@pytest.mark.parametrize(
    "unit",
    [
        "<code>",
        "{",
        '{"a":',
        "> ```\n",
        "<think>",
        "</think>",
        "```\n",
        "a ```",
        "~~~x\n",
        " ",
        "\u00a0",
        "<|im_end|>",
        "\r",
        "`",
        '"',
        "import os\n```\n",
    ],
)
def test_the_work_is_bounded_whatever_is_repeated(unit, monkeypatch):
    parsed = []
    real = ast.parse
    monkeypatch.setattr(ast, "parse", lambda text: parsed.append(len(text)) or real(text))
    assert isinstance(extract_code((unit * 131_072)[:131_072]), str)
    assert sum(parsed) <= 4_000_000
