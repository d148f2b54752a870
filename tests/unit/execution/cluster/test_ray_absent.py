import sys

import pytest

from wmrl_envs.errors import MissingExtra
from wmrl_envs.execution import RaySandbox, make_sandbox
from wmrl_train.engines.ray import RayEngine


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    for make in (RaySandbox, lambda: make_sandbox("ray"), lambda: RayEngine("transformers", "nowhere", None, workers=1)):
        with pytest.raises(MissingExtra, match=r"'\.\[ray\]'"):
            make()
