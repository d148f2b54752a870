"""What is installed in the sandbox is told to the agent and to the world models that check imports."""

from tests.doubles import ObedientSandbox
from wmrl_envs.context import TaskContext
from wmrl_envs.envs.mle_dojo import MLEDojoEnv
from wmrl_envs.outcome import Solution
from wmrl_envs.world_models.static.index.api import ApiIndex
from wmrl_envs.world_models.static.model import StaticWorldModel

INDEX = {"modules": {}, "objects": {}, "python": "3.11", "versions": {"numpy": "2.0"}, "top_level": ["numpy", "os"]}


class Boosted(ObedientSandbox):
    """A test double with a library more."""

    packages = ("lightgbm==4.7.0", "numpy==2.0")


def test_the_overview_names_the_libraries_of_the_sandbox(mledojo_dir):
    env = MLEDojoEnv("playground-series-s3e9", data_dir=mledojo_dir, sandbox=Boosted())
    overview, _ = env.reset(seed=0)
    assert overview.endswith("Installed libraries (no others can be imported or installed): lightgbm 4.7.0, numpy 2.0")
    assert env.context().installed == Boosted.packages
    bare = MLEDojoEnv("playground-series-s3e9", data_dir=mledojo_dir, sandbox=ObedientSandbox())
    assert "Installed libraries" not in bare.reset(seed=0)[0]


def test_the_check_of_imports_goes_by_what_is_installed_there():
    model = StaticWorldModel(index=ApiIndex(INDEX))
    solution = Solution("import lightgbm\nimport numpy", "t")
    told = TaskContext("t", installed=Boosted.packages)
    absent, present = (
        model.predict([solution], [c])[0].details["verdicts"]["imports"]["verdict"] for c in (TaskContext("t"), told)
    )
    assert (absent, present) == ("fail", "pass")
