import pytest

from wmrl_envs.context import TaskContext
from wmrl_envs.errors import InvalidInput
from wmrl_train.agents.brief import prompt
from wmrl_train.agents.program import ProgramAgent
from wmrl_train.warm_start.tokenizer import train_tokenizer


@pytest.fixture(scope="module")
def tokenizer(briefs):
    return train_tokenizer([prompt(b) for b in briefs] * 3, ["gamma-speed"], 400)


def context(brief):
    names = {
        "num": list(brief.num),
        "cat": list(brief.cat),
        "text": [],
        "date": [],
        "nan": [],
        "rows": 9,
        "target_kind": brief.target,
    }
    return TaskContext(brief.task, category=brief.category, metric=brief.metric, scaffold="sklearn", scaffold_names=names)


def test_a_known_task_is_prompted_by_name_and_a_new_one_by_what_it_asks_for(tokenizer, briefs):
    agent = ProgramAgent(tokenizer)
    assert tokenizer.decode(agent.begin("ignored", context(briefs[2]))) == "# gamma-speed, qwk, ord, num, cat, tabular\n"
    assert tokenizer.decode(agent.begin("ignored", context(briefs[1]))) == "# task, proba, bin, num, cat, tabular\n"


def test_a_later_turn_closes_the_last_one_and_says_whether_it_failed(tokenizer):
    agent = ProgramAgent(tokenizer)
    (end,) = agent.stop_ids
    ran, failed = agent.extend("Submission successful\nRaw Score: 1", (5, end)), agent.extend("Execution failed", (5, end))
    assert tokenizer.decode(ran) == "# ran, again\n"
    assert tokenizer.decode(failed) == "# failed, again\n"
    assert agent.extend("Execution failed", (5, 6)) == [end, *failed]


def test_the_action_is_the_completion(tokenizer):
    assert ProgramAgent(tokenizer).act("save(1)\n") == "save(1)\n"


def test_without_the_scaffold_it_says_what_is_missing(tokenizer):
    with pytest.raises(InvalidInput, match="scaffold='sklearn'"):
        ProgramAgent(tokenizer).begin("", TaskContext("titanic", category="tabular", metric="accuracy"))
