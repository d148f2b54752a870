"""Updates that a single process and the ranks of a torchrun make alike; `test_sharded.py` compares them.

Under torchrun: sharded_worker.py SAVED RESULTS, with SAVED what a single process saved after one update.
"""

import random
import sys
from dataclasses import replace

import torch

from tests.doubles import tiny_model
from wmrl_train.config import OptimConfig
from wmrl_train.episodes.records import Row
from wmrl_train.learn import learner as module
from wmrl_train.learn.learner import Learner, NonFiniteLoss, Sample
from wmrl_train.learn.ranks import Ranks
from wmrl_train.learn.sharded import ShardedLearner

COMMON = {"lr": 1e-4, "max_grad_norm": 0.5, "entropy_coef": 0.01, "tokens_per_micro_batch": 64}
CASES = {  # name -> (section optim, LoRA, gradient checkpointing)
    "kl": ({"kl_coef": 0.04}, False, False),
    "epochs": ({"kl_coef": 0.0, "loss": "dapo", "epochs": 2, "offload": True}, False, True),
    "lora": ({"kl_coef": 0.04, "loss": "dr_grpo"}, True, False),
}


def make(name, learner=Learner, seed=0, **options):
    optim, lora, checkpointing = CASES[name]
    model, _ = tiny_model(seed)
    if lora:
        from peft import LoraConfig, get_peft_model

        torch.manual_seed(seed)
        model = get_peft_model(model, LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False))
    return learner(
        model, OptimConfig(**(COMMON | optim)), horizon=40, temperature=0.9, gradient_checkpointing=checkpointing, **options
    )


def samples(update, n=7):
    """Rows of different lengths, sampled from nothing in particular; the third update has one row, so that a rank has none."""
    rng = random.Random(update)
    n = 1 if update == 2 else n
    made = []
    for i in range(n):
        row = Row()
        row.add([rng.randrange(4, 100) for _ in range(3 + i)])
        length = rng.randrange(5, 30)
        row.add([rng.randrange(4, 100) for _ in range(length)], [-4.6 + rng.random() for _ in range(length)])
        made.append(Sample(row, rng.uniform(-1, 1), 1 / n, length, f"rollout {i}"))
    return made


def trained(model):
    return {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}


def updates(learner, numbers):
    """Metrics of each update."""
    return [learner.update(samples(i)) for i in numbers]


def outcome(learner, metrics, model):
    return {"metrics": metrics, "weights": trained(model), "state": learner.state_dict()}


def main(saved, results):
    torch.set_num_threads(1)
    module.CHUNK_ELEMENTS = 7 * 104  # several chunks of the sharded head a micro-batch; a single process takes one
    ranks = Ranks.from_torchrun("cpu")
    found = {}

    def case(name, act):
        learner = make(name, ShardedLearner, seed=ranks.rank, ranks=ranks)  # other weights on rank 1: those of rank 0 count
        if ranks.rank > 0:
            learner.follow()
            return
        found.update(act(learner))
        learner.close()

    for name in CASES:
        case(name, lambda learner, name=name: {name: outcome(learner, updates(learner, range(3)), learner.whole)})

    def go_on(learner):
        before = torch.load(saved, weights_only=True)
        learner.whole.load_state_dict(before["weights"], strict=False)
        learner.load_state_dict(before["learner"])
        resumed = outcome(learner, updates(learner, range(1, 3)), learner.whole)
        broken = samples(0)
        broken[5] = replace(broken[5], advantage=float("nan"))
        try:
            learner.update(broken)
        except NonFiniteLoss as error:
            return {"resumed": resumed, "error": str(error), "after error": outcome(learner, [], learner.whole)}

    case("kl", go_on)
    if ranks.rank == 0:
        torch.save(found, results)
    ranks.leave()


if __name__ == "__main__":
    main(*sys.argv[1:])
