"""A packed data folder arrives as it was sent, or not at all."""

import pytest

from wmrl_envs.errors import InvalidInput
from wmrl_envs.execution.cluster.shipping import pack, unpack


def test_parts_of_other_data_are_refused_and_leave_nothing(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.csv").write_text(f"id,{name}\n" * 1000)
    parts = {name: [] for name in ("one", "two")}
    digests = {name: pack(tmp_path / name, parts[name].append, 4096) for name in parts}
    copy = unpack(parts["one"], digests["one"], tmp_path / "store")
    assert (copy / "train.csv").read_text() == (tmp_path / "one" / "train.csv").read_text()
    with pytest.raises(InvalidInput, match="not that of"):
        unpack(parts["one"], digests["two"], tmp_path / "store")
    assert not (tmp_path / "store" / digests["two"]).exists()
