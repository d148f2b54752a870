"""The logits of a batch never exist at once: every tensor of an update is watched, forward and backward."""

import copy

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from wmrl_train.config import OptimConfig
from wmrl_train.episodes.records import Row
from wmrl_train.learn import learner as module
from wmrl_train.learn.learner import Learner, Sample

VOCABULARY = 104


class Widest(TorchDispatchMode):
    """Records the most rows over the vocabulary that any operation made."""

    rows = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor) and tensor.dim() > 1 and tensor.shape[-1] == VOCABULARY:
                self.rows = max(self.rows, tensor.numel() // VOCABULARY)
        return made


def widest(tiny, **options):
    learner = Learner(copy.deepcopy(tiny[0]), OptimConfig(**({"kl_coef": 0.04, "entropy_coef": 0.01} | options)))
    samples = []
    for i in range(5):
        row = Row()
        row.add([5, i])
        row.add([7 + i] * 60, [-4.0] * 60)
        samples.append(Sample(row, 1.0, 0.2, 60))
    with Widest() as watched:
        learner.update(samples)
    return watched.rows


@pytest.mark.parametrize("rows", [33, 64, 200])  # above 32, the rows of the transposed head
def test_no_more_logits_than_a_chunk_at_a_time(tiny, monkeypatch, rows):
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", rows * VOCABULARY + VOCABULARY // 2)
    assert widest(tiny, epochs=2) == rows


def test_the_watch_sees_whole_batches_where_chunks_are_larger(tiny):
    assert widest(tiny) == 5 * 60


def test_the_shipped_chunk_is_a_quarter_of_a_gibibyte():
    assert module.CHUNK_ELEMENTS * 4 == 2**28
