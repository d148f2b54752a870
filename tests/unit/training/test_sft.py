import copy
import json

import pytest
import torch
import yaml
from typer.testing import CliRunner

from wmrl_envs.errors import InvalidInput
from wmrl_train.agents.chat import ChatFormat
from wmrl_train.cli import app
from wmrl_train.engines.transformers import load_model
from wmrl_train.episodes.records import Row
from wmrl_train.run.metrics import _spans
from wmrl_train.training.sft import SftConfig, chat_rows, completion_row, conversations, episodes, fit_rows, load, run

TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "two and two?"},
    {"role": "assistant", "content": "4"},
    {"role": "user", "content": "and two more?"},
    {"role": "assistant", "content": "6, I think"},
]


@pytest.fixture(scope="session")
def folder(tiny, tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny")
    tiny[0].save_pretrained(path)
    tiny[1].save_pretrained(path)
    return path


def lines(path, *records):
    path.write_text("".join(json.dumps(r) + "\n" for r in records))
    return path


@pytest.fixture
def data(tmp_path):
    pairs = [{"prompt": f"{a}+{b}=", "completion": str(a + b)} for a in range(5) for b in range(5)]
    return lines(tmp_path / "sums.jsonl", *pairs, {"messages": TALK})


def settings(folder, data, **options):
    return SftConfig(
        **({"model": str(folder), "data": [str(data)], "steps": 6, "batch": 8, "lr": 5e-3, "warmup_steps": 0} | options)
    )


def metrics(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def test_the_loss_and_its_gradient_are_those_of_cross_entropy_on_the_agents_tokens(tiny, folder, data, tmp_path):
    run(settings(folder, data, steps=1, batch=26), tmp_path / "out")
    (record,) = metrics(tmp_path / "out")
    model = copy.deepcopy(tiny[0])
    losses, count = [], 0
    for row in conversations(data, tiny[1]):
        labels = torch.tensor([[i if s else -100 for i, s in zip(row.ids, row.sampled, strict=True)]])
        logits = model(torch.tensor([row.ids])).logits[:, :-1]
        losses.append(
            torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100, reduction="sum")
        )
        count += row.n_sampled
    loss = sum(losses) / count
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9)
    assert record["tokens"] == count
    assert record["loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert record["grad_norm"] == pytest.approx(norm.item(), rel=1e-4)


def test_the_loss_falls_and_the_model_that_is_written_answers(folder, data, tmp_path):
    seen = []
    out = run(settings(folder, data, steps=60), tmp_path / "out", on_step=lambda step, values: seen.append(values["loss"]))
    assert sum(seen[-5:]) < 0.4 * sum(seen[:5])
    model, tokenizer = load_model(out)
    row = completion_row("4+1=", "5", tokenizer)
    logits = model(torch.tensor([row.ids])).logits[0]
    assert row.sampled == [False] * 4 + [True, True]
    assert logits[4].argmax() == tokenizer.eos_token_id


def test_the_shipped_policy_learns_a_program(tmp_path):
    data = lines(tmp_path / "one.jsonl", {"prompt": "# hotel-daily-rate, rmse", "completion": "model = Ridge()\n"})
    seen = []
    run(
        SftConfig(model="demo", data=[str(data)], steps=4, lr=1e-3, warmup_steps=0),
        tmp_path / "out",
        on_step=lambda s, v: seen.append(v["loss"]),
    )
    assert seen[-1] < seen[0]


def test_a_conversation_is_the_templates_text_and_only_answers_are_learned(tiny):
    tokenizer = tiny[1]
    (row,) = chat_rows(TALK, ChatFormat(tokenizer))
    assert tokenizer.decode(row.ids) == tokenizer.apply_chat_template(TALK, tokenize=False)
    learned = [i for i, s in zip(row.ids, row.sampled, strict=True) if s]
    assert tokenizer.decode(learned) == "4<end>6, I think<end>"


def test_a_template_that_rewrites_the_past_makes_a_row_an_answer(tiny):
    from tests.unit.agents.test_research import DROPS_THINKING

    tokenizer = copy.deepcopy(tiny[1])
    tokenizer.chat_template = DROPS_THINKING
    talk = [*TALK[1:2], {"role": "assistant", "content": "<think>hm</think>4"}, *TALK[3:]]
    first, second = chat_rows(talk, ChatFormat(tokenizer))
    assert tokenizer.decode(first.ids) == "<user>two and two?<end><assistant><think>hm</think>4<end>"
    assert (
        tokenizer.decode(second.ids)
        == "<user>two and two?<end><assistant>4<end><user>and two more?<end><assistant>6, I think<end>"
    )
    assert second.n_sampled == len("6, I think") + 1


def test_completions_are_encoded_as_the_warm_start_does():
    from wmrl_train.engines.models import model_path
    from wmrl_train.warm_start.build import encode

    tokenizer = __import__("transformers").AutoTokenizer.from_pretrained(model_path("demo"))
    ids, labels = encode([("# a task", False), ("x = 1\n", True)], tokenizer)
    row = completion_row("# a task", "x = 1\n", tokenizer)
    assert row.ids == ids
    assert [i if s else -100 for i, s in zip(row.ids, row.sampled, strict=True)] == labels


def test_a_resumed_run_repeats_an_uninterrupted_one(folder, data, tmp_path):
    whole = run(settings(folder, data), tmp_path / "whole")
    run(settings(folder, data, steps=3), tmp_path / "parts")
    with pytest.raises(InvalidInput, match="holds a fine-tuning already"):
        run(settings(folder, data), tmp_path / "parts")
    with pytest.raises(InvalidInput, match=r"made with lr=0\.005, now 0\.1"):
        run(settings(folder, data, lr=0.1), tmp_path / "parts", resume=True)
    parts = run(settings(folder, data), tmp_path / "parts", resume=True)
    assert (parts / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert metrics(tmp_path / "parts") == metrics(tmp_path / "whole")
    with pytest.raises(InvalidInput, match="No checkpoint"):
        run(settings(folder, data), tmp_path / "never", resume=True)


def test_adapters_learn_and_are_merged_into_the_model_that_is_written(tiny, folder, data, tmp_path):
    config = settings(folder, data, steps=30, lr=2e-2, lora={"r": 4, "alpha": 8})
    out = run(config, tmp_path / "out")
    recorded = metrics(tmp_path / "out")
    assert recorded[-1]["loss"] < recorded[0]["loss"]
    saved, _ = load_model(out)
    assert saved.state_dict().keys() == tiny[0].state_dict().keys()
    assert torch.equal(saved.model.embed_tokens.weight, tiny[0].model.embed_tokens.weight)  # adapters sit on linear layers
    assert not torch.equal(saved.model.layers[0].mlp.up_proj.weight, tiny[0].model.layers[0].mlp.up_proj.weight)
    assert (tmp_path / "out" / "checkpoints" / "step-000030" / "policy" / "adapter_model.safetensors").is_file()


def test_long_rows_are_cut_or_left_out_and_counted():
    answer = Row(list(range(10)), [False] * 4 + [True] * 6, [0.0] * 10)
    late = Row(list(range(10)), [False] * 8 + [True] * 2, [0.0] * 10)
    short = Row([1, 2], [False, True], [0.0, 0.0])
    kept = fit_rows([answer, late, short], 6)
    assert [row.ids for row in kept.rows] == [[0, 1, 2, 3, 4, 5], [1, 2]]
    assert (kept.cut, kept.left_out) == (1, 1)
    assert str(kept) == "2 rows with 3 tokens to learn; 1 rows cut, 1 left out"
    with pytest.raises(InvalidInput, match=r"None of 1 rows .* max_tokens=6: raise --max-tokens"):
        fit_rows([late], 6)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "holds no conversation"),
        ("\n\n", "holds no conversation"),
        ("{", "line 1 is not JSON"),
        ("[" * 100_000, "line 1 is not JSON"),
        ('\n{"text": "x"}', "line 2 holds 'text': expected 'messages'"),
        ("[1]", "line 1 holds list: expected 'messages'"),
        ('{"prompt": "x"}', "line 1 holds 'prompt': expected"),
        ('{"prompt": "x", "completion": 4}', "'prompt' and 'completion' as text"),
        ('{"prompt": "", "completion": "x"}', "line 1 has an empty prompt"),
        ('{"messages": []}', "line 1 has the roles of nobody"),
        ('{"messages": [{"role": "user"}]}', "every message needs a 'role'"),
        ('{"messages": [{"role": "robot", "content": "x"}]}', "every message needs a 'role'"),
        ('{"messages": [{"role": "user", "content": "x"}]}', "has the roles user: expected a user and then an assistant"),
        ('{"messages": [{"role": "assistant", "content": "x"}]}', "has the roles assistant"),
        (json.dumps({"messages": [*TALK[:3], TALK[2]]}), "two answers in a row"),
    ],
)
def test_files_that_hold_no_conversations_are_refused_by_their_line(tiny, tmp_path, content, message):
    file = tmp_path / "data.jsonl"
    file.write_text(content)
    with pytest.raises(InvalidInput, match=message):
        conversations(file, tiny[1])


def test_sources_that_are_not_there_are_refused(tiny, folder, tmp_path):
    with pytest.raises(InvalidInput, match="cannot be read"):
        conversations(tmp_path / "nothing.jsonl", tiny[1])
    with pytest.raises(InvalidInput, match="holds no run"):
        episodes(tmp_path, tiny[1], 0.5, False)
    with pytest.raises(InvalidInput, match="Nothing to learn from"):
        load(SftConfig(model=str(folder), data=[]), tiny[1])
    bare = copy.deepcopy(tiny[1])
    bare.chat_template = None
    with pytest.raises(InvalidInput, match="no chat template"):
        conversations(lines(tmp_path / "chat.jsonl", {"messages": TALK}), bare)


def episode(task, reward, ids, anchored=True, sampled=2):
    marks = [False] * (len(ids) - sampled) + [True] * sampled
    return {"task": task, "reward": reward, "anchored": anchored, "rows": [{"ids": ids, "sampled": _spans(marks)}]}


@pytest.fixture
def recorded(folder, tmp_path):
    """A run directory of two tasks."""
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / "config.yaml").write_text(yaml.safe_dump({"policy": {"model": str(folder)}}))
    lines(
        run_dir / "rollouts.jsonl",
        *[episode("easy", 0.9 - i / 100, [5, 6, 10 + i, 1]) for i in range(4)],
        episode("easy", 0.9, [5, 6, 10, 1]),  # the best one once more
        *[episode("hard", reward, [7, 6, 20 + i, 1]) for i, reward in enumerate([0.1, 0.2, 0.0])],
        episode("hard", 0.95, [7, 6, 30, 1], anchored=False),
        episode("none", 0.0, [8, 6, 40, 1]),
    )
    return run_dir


def test_of_a_run_the_best_executed_episodes_of_each_task_are_imitated(tiny, recorded):
    rows = episodes(recorded, tiny[1], 0.5, False)
    assert [row.ids[2] for row in rows] == [10, 11, 21, 20]
    assert rows[0].sampled == [False, False, True, True]
    assert [row.ids[2] for row in episodes(recorded / "rollouts.jsonl", tiny[1], 0.25, False)] == [10, 21]
    assert [row.ids[2] for row in episodes(recorded, tiny[1], 0.25, True)] == [10, 30]


def test_a_run_can_be_learned_from(recorded, folder, tmp_path):
    out = run(settings(folder, recorded, steps=20), tmp_path / "out")
    assert out.is_dir()
    losses = [m["loss"] for m in metrics(tmp_path / "out")]
    assert losses[-1] < 0.5 * losses[0]


def test_a_line_separator_of_unicode_is_part_of_a_text(tiny, tmp_path):
    file = tmp_path / "talk.jsonl"
    record = {"prompt": "a\u2028b\x85", "completion": "c"}
    file.write_text(json.dumps(record, ensure_ascii=False) + "\n", encoding="utf-8")
    assert len(conversations(file, tiny[1])) == 1


def test_runs_that_cannot_be_learned_from_are_refused(tiny, recorded):
    other = copy.deepcopy(tiny[1])
    other.add_tokens(["<more>"])
    with pytest.raises(InvalidInput, match="tokens of another tokenizer"):
        episodes(recorded, other, 0.5, False)
    lines(recorded / "rollouts.jsonl", episode("none", 0.0, [8, 6, 40, 1]), episode("hard", 0.5, [8, 6, 40, 1], anchored=False))
    with pytest.raises(InvalidInput, match=r"no executed episode with a reward above 0 .* --predicted"):
        episodes(recorded, tiny[1], 0.5, False)
    lines(recorded / "rollouts.jsonl", {"task": "x", "reward": 1, "anchored": True, "turns": []})
    with pytest.raises(InvalidInput, match="has no tokens"):
        episodes(recorded, tiny[1], 0.5, False)


def test_action_codes_of_a_robot_are_no_words(tiny, tmp_path):
    from wmrl_train.config import load_config

    (tmp_path / "config.yaml").write_text(load_config("libero").to_yaml())
    lines(tmp_path / "rollouts.jsonl", episode("task", 1.0, [8, 6, 40, 1]))
    with pytest.raises(InvalidInput, match="holds a robot's run: its action codes are no words"):
        episodes(tmp_path, tiny[1], 0.5, False)


def test_what_a_trainer_recorded_is_what_its_agent_wrote(tiny, folder, tmp_path):
    from tests.unit.training.test_trainer import config, trainer

    cfg = config(tmp_path, train__steps=2, policy__model=folder, anchors__fraction=1.0)
    work = trainer(cfg, tiny)
    try:
        work.run()
    finally:
        work.close()
        work.run_dir.release()
    with pytest.raises(InvalidInput, match="holds a run of `wmrl train`"):
        run(settings(folder, cfg.run_dir), cfg.run_dir)
    written = {turn["code"] for record in work.run_dir.read("rollouts.jsonl") for turn in record["turns"]}
    rows = episodes(cfg.run_dir, tiny[1], 1.0, False)
    assert rows
    for row in rows:
        sampled = tiny[1].decode([i for i, s in zip(row.ids, row.sampled, strict=True) if s]).removesuffix("<end>")
        assert sampled in written
    out = run(settings(folder, cfg.run_dir, steps=2), tmp_path / "sft")
    assert load_model(out)


def wmrl(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_the_command_writes_a_model(folder, data, tmp_path):
    result = wmrl("sft", tmp_path / "out", "--model", folder, "--data", data, "--steps", 2, "--batch", 4)
    assert result.exit_code == 0, result.output
    assert load_model(tmp_path / "out" / "model")
    assert "27 rows" in result.output or "26 rows" in result.output
    assert len(metrics(tmp_path / "out")) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--model", "demo", "--convert"), "--convert says nothing for a language model"),
        (("--top", 0.5), "--top needs --model"),
        ((), "holds conversations: name the language model to fine-tune with --model"),
        (("--model", "demo", "--top", 2), "--top 2.0: input should be less than or equal to 1"),
        (("--model", "demo", "--dtype", "int8"), "--dtype 'int8': input should be 'float32' or 'bfloat16'"),
        (("--model", "no-such-model"), "No model in 'no-such-model'"),
        (("--model", "demo", "--data", "nothing.jsonl"), "nothing.jsonl does not exist"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(data, tmp_path, arguments, message):
    assert message in str(wmrl("sft", tmp_path / "out", "--data", data, *arguments).exception)
