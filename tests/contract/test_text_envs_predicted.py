"""The text environments under a world model: predicted steps, anchors beside them, in one vector environment."""

import functools

import numpy as np
import pytest

from tests.doubles import ObedientSandbox, write_competition
from wmrl_envs import AnchoredVecEnv, StaticWorldModel, WorldModelEnv
from wmrl_envs.envs.mle_dojo import MLEDojoEnv
from wmrl_envs.outcome import ExecutionStatus, Outcome

SLUG = "amazon-employee-access-challenge"


class Guess:
    """A world model that always predicts 0.25 (a test double)."""

    def __init__(self):
        self.batches = []

    def predict(self, solutions, contexts):
        self.batches.append([context.history for context in contexts])
        text = "=== Code Execution Results ===\nExecution successful\n\n=== Submission Evaluation ===\nSubmission successful"
        return [Outcome(ExecutionStatus.OK, 0.25, None, text, source="predicted")] * len(solutions)


@pytest.fixture(scope="module")
def dojo(tmp_path_factory):
    root = tmp_path_factory.mktemp("dojo")
    return root, "#ok\n" + write_competition(root, SLUG, "Id", "ACTION")["perfect"]


def make(root, box, **kwargs):
    return MLEDojoEnv(SLUG, data_dir=root, sandbox=box, **kwargs)


def test_nothing_is_executed_under_a_world_model(dojo):
    box, model = ObedientSandbox(), Guess()
    env = WorldModelEnv(make(dojo[0], box, max_turns=2), model)
    env.reset(seed=0)
    text, reward, terminated, truncated, info = env.step(dojo[1])
    assert (reward, terminated, truncated, box.jobs) == (0.25, False, False, [])
    assert info["wmrl"]["predicted"] == info["wmrl"]["score"] == 0.25
    assert info["wmrl"]["anchored"] is False
    assert text.endswith("Best Position Score: 0.25")
    assert env.step(dojo[1])[1:4] == (0.0, True, False)
    assert [len(history) for (history,) in model.batches] == [0, 1]


def test_anchored_groups_are_paid_what_execution_says(dojo):
    box, model = ObedientSandbox(), Guess()
    fns = [functools.partial(make, dojo[0], box, max_turns=1)] * 4
    envs = AnchoredVecEnv(fns, model, group_size=2, anchor_fraction=0.01, min_anchor_groups=1, seed=0)
    envs.reset(seed=0)
    _, rewards, terminated, truncated, infos = envs.step((dojo[1],) * 4)
    anchored = np.asarray(infos["wmrl"]["anchored"], bool)
    assert anchored.sum() == 2
    assert rewards[anchored].tolist() == [1.0, 1.0]
    assert rewards[~anchored].tolist() == [0.25, 0.25]
    assert len(box.jobs) == 2
    assert [len(batch) for batch in model.batches] == [4]
    assert terminated.all()
    assert not truncated.any()
    envs.close()


def test_a_sandbox_failure_of_an_anchor_is_truncation_without_a_score(dojo):
    fns = [functools.partial(make, dojo[0], ObedientSandbox(), max_turns=2)] * 2
    envs = AnchoredVecEnv(fns, Guess(), group_size=1, anchor_fraction=1.0, seed=0)
    envs.reset(seed=0)
    _, rewards, _, truncated, infos = envs.step(("#infra", dojo[1]))
    assert rewards.tolist() == [0.0, 1.0]
    assert truncated.tolist() == [True, False]
    assert infos["wmrl"]["status"][0] == "infra_error"
    envs.close()


def test_the_static_world_model_reads_the_context(dojo):
    env = WorldModelEnv(make(dojo[0], ObedientSandbox()), StaticWorldModel())
    env.reset(seed=0)
    text, reward, *_, info = env.step(
        "import os\nimport pandas as pd\nd = pd.read_csv(os.environ['DATA_DIR'] + '/nowhere.csv')\n"
    )
    assert info["wmrl"]["status"] == "agent_error"
    assert reward < 0.2
    assert "nowhere.csv" in text
