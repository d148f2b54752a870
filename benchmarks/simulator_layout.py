"""What the order of the simulator's prompts costs: eight checks of one program, with the case first and with the check first.

    python benchmarks/simulator_layout.py [--engine vllm] [--engine-model DIRECTORY] [--max-new-tokens 1] [--rounds 3]

With vLLM, run it in the environment of `make test-vllm`. One new token: the time is that of the prompts. "computed" are the prompt
tokens that no prefix cache had; caches are emptied before each call, so what is saved is saved within one batch of eight checks.
"""

import argparse
import statistics
import time
from typing import Any, get_args

from wmrl_envs.world_models.prompts import Layout
from wmrl_envs.world_models.simulator import SimulatorWorldModel
from wmrl_train.commands.fidelity import CORPUS
from wmrl_train.engines import make_engine
from wmrl_train.fidelity_run import Executed, collect
from wmrl_train.models import check_model

OPTIONS = {"vllm": {"dtype": "float32", "max_model_len": 4096, "max_num_seqs": 16, "enforce_eager": True}, "transformers": {}}


def ask(engine: Any, layout: Layout, case: Executed, max_new_tokens: int) -> tuple[float, int, int]:
    """Seconds, prompt tokens, and prompt tokens computed, for one program."""
    model = SimulatorWorldModel(
        engine, layout=layout, context_tokens=4096 - max_new_tokens, max_new_tokens=max_new_tokens, parse_retries=0
    )
    _ = model.installed  # read from the sandbox once, outside the time
    if hasattr(engine, "forget_prefixes"):
        engine.forget_prefixes()
    engine.statistics.clear()
    start = time.perf_counter()
    model.predict([case.solution], [case.context])
    seconds = time.perf_counter() - start
    prompt = engine.statistics["prompt_tokens"]
    return seconds, prompt, prompt - engine.statistics["cached_tokens"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=OPTIONS, default="transformers")
    parser.add_argument("--engine-model", default="smollm2")
    parser.add_argument("--max-new-tokens", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    (case,), _ = collect(corpus=CORPUS, fresh=0, tasks=None, seed=0, limit=1, max_rows=None, timeout_s=20.0)
    engine = make_engine(arguments.engine, str(check_model(arguments.engine_model)), **OPTIONS[arguments.engine])
    try:
        ask(engine, "paper", case, arguments.max_new_tokens)  # compiles
        print(f"{arguments.engine}, {arguments.engine_model}, task {case.context.task}, {arguments.max_new_tokens} new tokens")
        print("| layout | prompt tokens | computed | seconds (median) |")
        print("|---|---|---|---|")
        for layout in get_args(Layout):
            runs = [ask(engine, layout, case, arguments.max_new_tokens) for _ in range(arguments.rounds)]
            print(f"| {layout} | {runs[0][1]} | {runs[0][2]} | {statistics.median(r[0] for r in runs):.2f} |")
    finally:
        engine.close()


if __name__ == "__main__":
    main()
