"""What the order of the simulator's prompts costs: eight checks of one program, with the case first and with the check first.

    python benchmarks/simulator_layout.py [--engine vllm] [--engine-model DIRECTORY] [--rounds 3] [--out docs/results/NAME.json]

With vLLM, run it in the environment of `make test-vllm`. One new token by default: the time is that of the prompts. "computed" are
the prompt tokens that no prefix cache had; caches are emptied before each call, so what is saved is saved within one batch of eight
checks. CPU seconds stand beside those of the wall clock, which on a busy machine say more about the machine.
"""

import argparse
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any, get_args

from wmrl_envs.world_models.simulator.model import SimulatorWorldModel
from wmrl_envs.world_models.simulator.prompts import Layout
from wmrl_train.commands.fidelity import CORPUS
from wmrl_train.engines import make_engine
from wmrl_train.engines.models import check_model
from wmrl_train.fidelity.run import Executed, collect

OPTIONS = {"vllm": {"dtype": "float32", "max_model_len": 4096, "max_num_seqs": 16, "enforce_eager": True}, "transformers": {}}


def ask(engine: Any, layout: Layout, case: Executed, context_tokens: int, max_new_tokens: int) -> tuple[float, float, int, int]:
    """Seconds, CPU seconds, prompt tokens, and prompt tokens computed, for one program."""
    model = SimulatorWorldModel(
        engine, layout=layout, context_tokens=context_tokens, max_new_tokens=max_new_tokens, parse_retries=0
    )
    _ = model.installed  # read from the sandbox once, outside the time
    if hasattr(engine, "forget_prefixes"):
        engine.forget_prefixes()
    engine.statistics.clear()
    start, cpu = time.perf_counter(), time.process_time()
    model.predict([case.solution], [case.context])
    seconds, cpu_s = time.perf_counter() - start, time.process_time() - cpu
    prompt = engine.statistics["prompt_tokens"]
    return seconds, cpu_s, prompt, prompt - engine.statistics["cached_tokens"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=OPTIONS, default="transformers")
    parser.add_argument("--engine-model", default="smollm2")
    parser.add_argument("--context-tokens", type=int, default=3000)
    parser.add_argument("--max-new-tokens", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="file for the figures, JSON")
    arguments = parser.parse_args()
    (case,), _ = collect(corpus=CORPUS, fresh=0, tasks=None, seed=0, limit=1, max_rows=None, timeout_s=20.0)
    engine = make_engine(arguments.engine, str(check_model(arguments.engine_model)), **OPTIONS[arguments.engine])
    sizes = (arguments.context_tokens, arguments.max_new_tokens)
    try:
        ask(engine, "paper", case, *sizes)  # compiles
        figures = {}
        for layout in get_args(Layout):
            seconds, cpu_s, prompt, computed = zip(
                *(ask(engine, layout, case, *sizes) for _ in range(arguments.rounds)), strict=True
            )
            figures[layout] = {
                "prompt_tokens": prompt[0],
                "computed_tokens": computed[0],
                "seconds_median": round(statistics.median(seconds), 3),
                "cpu_seconds_median": round(statistics.median(cpu_s), 3),
            }
    finally:
        engine.close()
    kept = {k: v for k, v in vars(arguments).items() if k != "out"}
    report = json.dumps(
        {**kept, "task": case.context.task, "threads": os.environ.get("OMP_NUM_THREADS"), "layouts": figures}, indent=1
    )
    print(report)
    if arguments.out:
        arguments.out.write_text(report + "\n")


if __name__ == "__main__":
    main()
