"""The example of GRPO in LIBERO runs, at its smallest."""

import pytest

from tests.smoke.test_examples import load

pytestmark = pytest.mark.libero


def test_libero_grpo_runs_from_demonstrations_to_success_rates(tmp_path, capsys):
    before, after = load("libero_grpo").main(steps=1, demonstrations=2, groups=2, n=2, folder=tmp_path)
    assert 0 <= before <= 1
    assert 0 <= after <= 1
    assert "success of sampled episodes" in capsys.readouterr().out
    assert (tmp_path / "grpo" / "checkpoints" / "step-000001" / "policy").is_dir()
