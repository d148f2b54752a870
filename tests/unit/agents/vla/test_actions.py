import json

import numpy as np
import pytest

from wmrl_envs.errors import InvalidInput
from wmrl_train.agents.vla.actions import ActionNormalizer, action_ids, binary_gripper, prompt_text


def test_the_prompt_is_minivla_s_byte_for_byte():
    assert prompt_text("Put both Moka pots on the stove").encode() == (
        b"<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
        b"<|im_start|>user\nWhat action should the robot take to put both moka pots on the stove?<|im_end|>\n"
        b"<|im_start|>assistant\n"
    )


def test_only_the_last_ids_of_the_tokenizer_are_actions():
    ids = action_ids(151665 + 256, 128)
    assert ids[0] == 151920
    assert ids[-1] == 151793
    assert len(set(ids.tolist())) == 128


def test_normalisation_by_quantiles_leaves_the_gripper_alone_and_undoes_itself():
    normalizer = ActionNormalizer(np.array([-0.5, 0.0, -1.0]), np.array([0.5, 2.0, 1.0]), np.array([True, True, False]))
    actions = np.array([[0.0, 0.5, -1.0], [0.5, 2.0, 1.0]])
    scaled = normalizer.normalize(actions)
    np.testing.assert_allclose(scaled, [[0.0, -0.5, -1.0], [1.0, 1.0, 1.0]])
    np.testing.assert_allclose(normalizer.restore(scaled), actions)
    np.testing.assert_allclose(normalizer.normalize(np.array([9.0, -9.0, 0.3])), [1, -1, 0.3], rtol=1e-6)


def test_statistics_files_are_found_with_and_without_no_noops(tmp_path):
    path = tmp_path / "dataset_statistics.json"
    entry = {"action": {"q01": [-1.0, 0.0], "q99": [1.0, 0.0], "mask": [True, True]}}
    path.write_text(json.dumps({"libero_10_no_noops": entry}))
    normalizer = ActionNormalizer.load(path, "libero_10")
    assert normalizer.mask.tolist() == [True, False]  # the second dimension never moves
    assert ActionNormalizer.load(path).q01.tolist() == [-1.0, 0.0]
    with pytest.raises(InvalidInput, match="no action statistics for 'bridge'; it has libero_10_no_noops"):
        ActionNormalizer.load(path, "bridge")
    with pytest.raises(InvalidInput, match="expected q01 and q99"):
        ActionNormalizer.of({"q01": [0.0]})


def test_the_gripper_is_binary_in_libero_s_sense():
    chunk = np.zeros((3, 7))
    chunk[:, 6] = [-0.2, 0.1, 0.9]
    assert binary_gripper(chunk)[:, 6].tolist() == [-1, 1, 1]
    assert binary_gripper(chunk, inverted=True)[:, 6].tolist() == [1, 1, -1]
