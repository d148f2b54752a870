"""The import rule of docs/architecture.md: imports point down, nothing imports in a circle, every room has a floor."""

import importlib.util
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "docs" / "scripts" / "floors.py"


@pytest.fixture(scope="module")
def floors():
    spec = importlib.util.spec_from_file_location("floors", FILE)
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules["floors"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["floors"]


def test_no_import_climbs(floors):
    assert floors.upward() == []


def test_no_files_import_each_other(floors):
    assert floors.circles() == []


def test_no_rooms_import_each_other(floors):
    assert floors.rooms_in_a_circle() == []


def test_a_climb_and_a_circle_are_seen(floors, monkeypatch):
    up = floors.Import("wmrl_envs.tasks.spec", "wmrl_envs.wrappers.sb3", 1)
    back = floors.Import("wmrl_envs.wrappers.sb3", "wmrl_envs.tasks.spec", 1)
    monkeypatch.setattr(floors, "imports", lambda: [up, back])
    assert floors.upward() == ["wmrl_envs.tasks.spec:1 imports wmrl_envs.wrappers.sb3"]
    assert floors.circles() == [["wmrl_envs.tasks.spec", "wmrl_envs.wrappers.sb3"]]


def test_the_environments_know_nothing_of_the_trainer(floors):
    assert [one for one in floors.imports() if one.source.startswith("wmrl_envs") and one.target.startswith("wmrl_train")] == []


def test_nothing_but_the_command_line_imports_commands(floors):
    sources = {one.source for one in floors.imports() if one.target.startswith("wmrl_train.commands")}
    assert all(source == "wmrl_train.cli" or source.startswith("wmrl_train.commands") for source in sources), sources


def test_the_picture_is_that_of_the_floors(floors):
    assert (floors.ROOT / "docs" / "figures" / "floors.svg").read_text(encoding="utf-8") == floors.draw(), (
        "run docs/scripts/floors.py"
    )
