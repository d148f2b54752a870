"""What ships with the package: the policy of the demo and the reference boards."""

import csv
import json
from importlib import resources
from pathlib import Path

import pytest

import wmrl_train
from wmrl_envs.tasks import list_competitions, task_spec
from wmrl_train.agents.brief import Brief, known_tasks, prompt

DEMO = Path(wmrl_train.__file__).parent / "engines" / "assets" / "demo"


def test_the_demo_policy_was_trained_on_the_training_tasks_only_and_is_small():
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(DEMO)
    training = set(list_competitions("train", "builtin"))
    assert known_tasks(tokenizer) == training
    provenance = json.loads((DEMO / "provenance.json").read_text())
    assert set(provenance["tasks"]) == training
    assert sum(f.stat().st_size for f in DEMO.iterdir()) < 5_000_000


def test_the_demo_policy_writes_programs_that_parse():
    import ast

    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, tokenizer = AutoModelForCausalLM.from_pretrained(DEMO), AutoTokenizer.from_pretrained(DEMO)
    brief = Brief("hpc-job-speed", "tabular", "qwk", "ord", 1000, num=("hour",), cat=("day",))
    ids = torch.tensor([tokenizer(prompt(brief))["input_ids"]] * 24)
    torch.manual_seed(0)
    sampled = model.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=True, temperature=1.0, top_k=0, max_new_tokens=120
    )
    programs = tokenizer.batch_decode(sampled[:, ids.shape[1] :], skip_special_tokens=True)
    assert len(set(programs)) >= 20
    parsed = 0
    for program in programs:
        try:
            ast.parse(program)
        except SyntaxError:
            continue
        parsed += "m.fit(" in program
    assert parsed >= 16


@pytest.mark.parametrize("slug", list_competitions(source="builtin"))
def test_every_built_in_task_has_a_board_with_the_best_first(slug):
    text = resources.files("wmrl_envs.tasks").joinpath("boards", f"{slug}.csv").read_text()
    rows = list(csv.DictReader(text.splitlines()))
    scores = [float(row["score"]) for row in rows]
    assert [int(row["rank"]) for row in rows] == list(range(1, len(rows) + 1))
    assert len(scores) >= 25
    assert scores == sorted(set(scores), reverse=task_spec(slug).higher_is_better)
