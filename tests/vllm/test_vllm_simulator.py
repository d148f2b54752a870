"""The simulator world model on vLLM: eight checks of two programs in one batch, decoded under the schema."""

import pytest

from tests.unit.world_models.world_model_cases import program, script
from wmrl_envs.world_models.simulator.model import SimulatorWorldModel
from wmrl_envs.world_models.simulator.prompts import ALL_CHECKS

pytestmark = pytest.mark.vllm

GOOD = """import os
import pandas as pd

test = pd.read_csv(os.path.join(os.environ["DATA_DIR"], "test.csv"))
test[["id"]].assign(label=0.5).to_csv(os.environ["SUBMISSION_PATH"], index=False)
"""
BAD = GOOD.replace("test.csv", "missing.csv")


@pytest.mark.parametrize("layout", ["shared-prefix", "paper"])
def test_eight_checks_of_two_programs_are_all_read(engine, layout):
    installed = {"numpy": "2.4.6", "pandas": "3.1.1", "scikit-learn": "1.9.1"}
    model = SimulatorWorldModel(engine, layout=layout, max_new_tokens=1024, installed=installed)
    assert model.context_tokens == engine.max_context - 1024
    engine.statistics.clear()
    outcomes = model.predict([program(GOOD), program(BAD)], [script()] * 2)
    for outcome in outcomes:
        assert set(outcome.details["verdicts"]) == set(ALL_CHECKS)
        assert outcome.details["unparsed"] == 0
        assert 0.0 <= outcome.score <= 1.0
        assert outcome.feedback.startswith("=== Code Execution Results ===")
    assert model.statistics["generated"] == 16 + model.statistics["reasked"]
    assert engine.statistics["cached_tokens"] > 0
    assert [o.score for o in model.predict([program(GOOD), program(BAD)], [script()] * 2)] == [o.score for o in outcomes]
    assert model.statistics["cached"] == 16
