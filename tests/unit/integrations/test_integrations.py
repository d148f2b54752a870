import numpy as np
import pytest
import torch

from tests.doubles import FakeWorldModel, ToyEnv, toy_score
from wmrl_envs.correction import AnchorSchedule, Corrector
from wmrl_envs.errors import InvalidInput
from wmrl_train.integrations.trl import WmrlRewards
from wmrl_train.integrations.verl import fused_advantages, group_id, register

TEXTS = ["abcd", "ABcd", "ABCd", "ABCD", "ab12", "a123", "1234", "ABC1"] * 4


def rewards(**options):
    corrector = Corrector(min_pairs=8, refit_every=4)
    schedule = AnchorSchedule(0.25, 1, seed=0)
    return WmrlRewards(ToyEnv, FakeWorldModel(), corrector, schedule, **({"group_size": 4} | options))


def test_centred_trl_rewards_are_the_correctors_weighted_advantages():
    source, tasks = rewards(), [f"t{i // 4}" for i in range(32)]
    for _ in range(6):  # through warm-up and beyond
        reference = Corrector(min_pairs=8, refit_every=4)
        reference.load_state_dict(source.corrector.state_dict())
        executed = source.executed(TEXTS, TEXTS, task=tasks)
        predicted = source.predicted(TEXTS, TEXTS)
        assert all((e is None) != (p is None) for e, p in zip(executed, predicted, strict=True))
        total = np.array([e if e is not None else p for e, p in zip(executed, predicted, strict=True)]).reshape(8, 4)
        anchored = np.array([e is not None for e in executed]).reshape(8, 4)[:, 0]
        raw = np.array([FakeWorldModel()._score(t) for t in TEXTS]).reshape(8, 4)
        true = np.array([toy_score(t) for t in TEXTS]).reshape(8, 4)
        expected = reference.advantages(raw, true, anchored) * 8
        np.testing.assert_allclose(total - total.mean(1, keepdims=True), expected, atol=1e-12)
    assert source.corrector.ready


def test_conversations_and_failures_of_ours():
    source = rewards()
    chats = [[{"role": "assistant", "content": t}] for t in TEXTS]
    assert source.executed(chats, chats, task=["t"] * 32) == rewards().executed(TEXTS, TEXTS, task=["t"] * 32)
    broken = WmrlRewards(
        lambda task: ToyEnv(task, broken=lambda n: True), FakeWorldModel(), Corrector(), AnchorSchedule(1.0, 1), group_size=4
    )
    assert broken.executed(TEXTS, TEXTS, task=["t"] * 32) == [0.0] * 32
    assert broken.corrector.n_pairs == 0


def test_misuse_is_named():
    with pytest.raises(InvalidInput, match="num_generations"):
        rewards(group_size=5).executed(TEXTS, TEXTS, task=["t"] * 32)
    with pytest.raises(InvalidInput, match=r"executed\(\) for the same batch first"):
        rewards().predicted(TEXTS, TEXTS)


def test_verl_advantages_are_weighted_by_group():
    index = [group_id(f"g{i // 2}", anchored=i < 2) for i in range(6)]
    token_rewards = torch.zeros(6, 3)
    token_rewards[:, 2] = torch.tensor([1.0, 0.0, 0.5, 0.1, 0.2, 0.4])
    mask = torch.tensor([[1, 1, 0]] * 6)
    advantages, _ = fused_advantages(token_rewards, mask, index, rho=2.0)
    centred = torch.tensor([0.5, -0.5, 0.2, -0.2, -0.1, 0.1])
    weights = torch.tensor([2.0, 2.0, 1.0, 1.0, 1.0, 1.0]) * 3 / 4
    torch.testing.assert_close(advantages[:, 0], centred * weights)
    assert (advantages[:, 2] == 0).all()


def test_absent_verl_is_named():
    with pytest.raises(InvalidInput, match="needs verl"):
        register(lambda: 1.0)


@pytest.mark.parametrize("fusion", ["cv", "dr", "auto"])
def test_a_rule_that_is_no_weight_a_group_is_refused(fusion):
    with pytest.raises(InvalidInput, match="expected fusion='ivw' or 'none'"):
        WmrlRewards(lambda task: ToyEnv(task), FakeWorldModel(), Corrector(fusion=fusion), AnchorSchedule(), group_size=4)
