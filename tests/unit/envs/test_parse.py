import pytest

from wmrl_envs.envs.parse import extract_code, solution

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
