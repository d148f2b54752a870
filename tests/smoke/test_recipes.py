"""Every block of code in docs/gym.md runs."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "gym.md").read_text()
BLOCKS = {
    title.strip(): code
    for title, body in re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, flags=re.M | re.S)
    for code in re.findall(r"```python\n(.*?)```", body, flags=re.S)
}
LIBRARIES = ("stable_baselines3", "torchrl", "tianshou")


def test_the_page_has_its_recipes():
    assert list(BLOCKS) == ["Your own loop (CleanRL style)", "Stable-Baselines3", "torchrl", "tianshou"]


@pytest.mark.parametrize("title", BLOCKS)
def test_a_recipe_runs(title):
    for library in LIBRARIES:
        if f"from {library}" in BLOCKS[title]:
            pytest.importorskip(library)
    exec(compile(BLOCKS[title], f"docs/gym.md, {title}", "exec"), {"__name__": "recipe"})
