"""Evaluate an agent with a plain `env.step` loop: anything that turns a text into a text is one.

    wmrl tasks prepare builtin
    python examples/evaluate_agent.py --competition credit-default --attempts 3

`wmrl eval --agent python:my_module:my_agent --tasks held_out` does the same for many tasks, in parallel and resumable.
"""

import argparse
from collections.abc import Callable

import gymnasium as gym

import wmrl_envs  # noqa: F401  (registers MLEDojo-v0)

SAFE = """
import os, shutil
shutil.copy(os.path.join(os.environ["DATA_DIR"], "sample_submission.csv"), os.environ["SUBMISSION_PATH"])
"""

BETTER = """
import os
import pandas as pd
from sklearn.ensemble import RandomForestRegressor

data = os.environ["DATA_DIR"]
train, test = pd.read_csv(data + "/train.csv"), pd.read_csv(data + "/test.csv")
sample = pd.read_csv(data + "/sample_submission.csv")
target = sample.columns[-1]
features = test.drop(columns=sample.columns[0]).select_dtypes("number").columns
model = RandomForestRegressor(100, min_samples_leaf=10, random_state=0).fit(train[features].fillna(-1), train[target])
sample[target] = model.predict(test[features].fillna(-1))
sample.to_csv(os.environ["SUBMISSION_PATH"], index=False)
print("trained on", len(train), "rows")
"""


def agent(observation: str) -> str:
    """Land a valid submission first, improve on it afterwards. Put yours here."""
    if "Submission successful" not in observation:
        return f"First a submission that is certainly valid.\n```python\n{SAFE}```"
    return f"Now a forest on the numeric columns.\n```python\n{BETTER}```"


def evaluate(agent: Callable[[str], str], competition: str, attempts: int = 1, **options) -> list[float]:
    """The score of each attempt, a fraction of the leaderboard that its best program beats."""
    env = gym.make("MLEDojo-v0", competition=competition, **options)
    scores = []
    for attempt in range(attempts):
        observation, info = env.reset(seed=attempt)
        score, done = 0.0, False
        while not done:
            observation, reward, terminated, truncated, info = env.step(agent(observation))
            score += reward  # in the default reward mode the return of an episode is its best score
            done = terminated or truncated
        if info["wmrl"]["status"] != "infra_error":  # a failure of the sandbox is no score
            scores.append(score)
    env.close()
    return scores


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--competition", default="credit-default")
    parser.add_argument("--attempts", type=int, default=1)
    parser.add_argument("--turns", type=int, default=2)
    arguments = parser.parse_args()
    for number, result in enumerate(evaluate(agent, arguments.competition, arguments.attempts, max_turns=arguments.turns)):
        print(f"attempt {number}: beats {result:.1%} of the leaderboard of {arguments.competition}")
