from pathlib import Path

from tests.unit.world_models.world_model_cases import script
from wmrl_envs.world_models.simulator import prompts
from wmrl_envs.world_models.simulator.prompts import ALL_CHECKS

GOLDEN = Path(__file__).parents[3] / "golden" / f"world_model_prompts_v{prompts.VERSION}.txt"


def rendered():
    system = prompts.system_prompt({"numpy": "2.4.6", "pandas": "3.1.1"}, "3.11.7", 1200.0)
    case = prompts.case_block("some-task", "Predict y.\ntrain.csv: 3 rows", prompts.numbered("import os\nprint(1)"), "a report")
    return "\n\n=====\n\n".join([system, *(prompts.user_prompt(c, case, "paper") for c in ALL_CHECKS)]) + "\n"


def test_prompts_are_those_of_their_version():
    assert rendered() == GOLDEN.read_text(), "a changed prompt needs a new VERSION and a new golden file"


def test_there_are_the_eight_checks_of_the_paper():
    assert set(ALL_CHECKS) == {"imports", "api", "data", "shapes", "compute", "runtime", "submission", "quality"}


def test_the_shared_prefix_layout_shares_its_prefix_and_the_paper_layout_starts_with_the_check():
    case = prompts.case_block("t", "o", "001 x")
    shared = [prompts.user_prompt(c, case, "shared-prefix") for c in ALL_CHECKS]
    paper = [prompts.user_prompt(c, case, "paper") for c in ALL_CHECKS]
    assert all(p.startswith(case) for p in shared)
    assert all(p.startswith(f"CHECK {c}") and p.endswith(case) for c, p in zip(ALL_CHECKS, paper, strict=True))


def test_lines_are_numbered_as_python_counts_them():
    code = "a = '\u2028\x0c\x0b\x85'\r\nb = 1\rc = 2\n"
    assert prompts.numbered(code) == "001 a = '\u2028\x0c\x0b\x85'\n002 b = 1\n003 c = 2"
    assert prompts.numbered("") == "001 "
    assert prompts.numbered("a\n\n") == "001 a\n002 "


def test_the_context_given_to_a_prompt_holds_no_answers():
    assert "private" not in prompts.system_prompt({}) + script().overview
