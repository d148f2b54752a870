"""What is said when LIBERO cannot run here, and what a task is. No simulator."""

import importlib.util
import os
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from wmrl_envs.envs.libero import catalog, install
from wmrl_envs.errors import InfrastructureError, InvalidInput, MissingExtra


def test_a_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"'\.\[libero\]'"):
        gym.make("LIBERO-Long-v0")


@pytest.mark.parametrize("found", ["2.3.7", "3.2.6", "3.3.3", "3.4.0", "3.17.0"])
def test_mujoco_outside_the_pin_says_which_to_install(monkeypatch, found):
    monkeypatch.setattr(install, "version", lambda name: found)
    with pytest.raises(InvalidInput, match=f"MuJoCo {found} .*mujoco==3.3.2"):
        install.require_mujoco()


@pytest.mark.parametrize("found", ["3.2.7", "3.3.0", "3.3.2"])
def test_mujoco_inside_the_pin_is_accepted(monkeypatch, found):
    monkeypatch.setattr(install, "version", lambda name: found)
    assert install.require_mujoco() == found


def test_no_renderer_names_the_system_package(monkeypatch):
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.setattr("ctypes.util.find_library", lambda name: None)
    with pytest.raises(InfrastructureError, match="apt-get install libosmesa6"):
        install.choose_renderer()
    monkeypatch.setenv("MUJOCO_GL", "egl")
    with pytest.raises(InfrastructureError, match="apt-get install libegl1"):
        install.choose_renderer()


def test_the_renderer_of_the_user_wins(monkeypatch):
    monkeypatch.setattr("ctypes.util.find_library", lambda name: f"lib{name}.so")
    monkeypatch.setenv("MUJOCO_GL", "egl")
    assert install.choose_renderer() == "egl"
    monkeypatch.setenv("MUJOCO_GL", "vulkan")
    with pytest.raises(InvalidInput, match="MUJOCO_GL='vulkan'"):
        install.choose_renderer()


def test_check_reports_every_problem_instead_of_raising(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr("ctypes.util.find_library", lambda name: None)
    report = {name: (ok, message) for name, ok, message in install.check()}
    assert not report["LIBERO package"][0]
    assert "libgl1 libglib2.0-0" in report["system libraries"][1]
    assert "libosmesa6" in report["renderer"][1] or "libegl1" in report["renderer"][1]


@pytest.mark.libero
def test_the_configuration_is_ours_and_nothing_prompts(monkeypatch, tmp_path):
    monkeypatch.setenv("WMRL_HOME", str(tmp_path))
    monkeypatch.delenv("LIBERO_CONFIG_PATH", raising=False)
    monkeypatch.setenv("MUJOCO_GL", "")  # whichever renderer this machine has
    monkeypatch.delitem(sys.modules, "libero.libero", raising=False)
    monkeypatch.setattr(install, "_texture_size", [None])
    install.configure()
    folder = Path(os.environ["LIBERO_CONFIG_PATH"])
    assert folder.is_relative_to(tmp_path)
    assert (folder / "config.yaml").is_file()

    monkeypatch.setitem(sys.modules, "libero.libero", object())
    with pytest.raises(InvalidInput, match="texture_size=64"):
        install.configure(texture_size=64)


@pytest.mark.libero
def test_without_pictures_no_renderer_is_needed(monkeypatch, tmp_path):
    monkeypatch.setenv("WMRL_HOME", str(tmp_path))
    monkeypatch.setenv("LIBERO_CONFIG_PATH", str(tmp_path))
    monkeypatch.setenv("MUJOCO_GL", "")
    monkeypatch.delitem(sys.modules, "libero.libero", raising=False)
    monkeypatch.setattr("ctypes.util.find_library", lambda name: None)
    install.configure(render=False)
    assert os.environ["MUJOCO_GL"] == "glx"
    monkeypatch.setenv("MUJOCO_GL", "")
    with pytest.raises(InfrastructureError, match="No renderer"):
        install.configure()


@pytest.mark.libero
def test_libero_long_is_the_official_ten_in_order():
    found = catalog.tasks()
    assert len(found) == 10
    assert found[8].name == "KITCHEN_SCENE8_put_both_moka_pots_on_the_stove"
    assert found[7].instruction == "put both the alphabet soup and the cream cheese box in the basket"
    assert all(task.bddl.is_file() and catalog.initial_states(task).shape[0] == 50 for task in found)
    assert catalog.find_task(found[3].instruction) == found[3] == catalog.find_task(found[3].name)


@pytest.mark.libero
def test_splits_divide_the_fifty_states():
    task = catalog.find_task(0)
    train, unseen, every = (catalog.start_states(task, s).indices for s in ("train", "unseen", "all"))
    assert train == tuple(range(16))
    assert train + unseen == every == tuple(range(50))
    assert catalog.start_states(task, [3, 49]).indices == (3, 49)


@pytest.mark.libero
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"task": 10}, "task=10: libero_10 has tasks 0 to 9"),
        ({"task": -1}, "task=-1"),
        ({"task": "fold the laundry"}, "fold the laundry"),
        ({"suite": "libero_11"}, "suite='libero_11'"),
        ({"init_states": "test"}, "init_states='test'"),
        ({"init_states": [50]}, r"init_states=\[50\]"),
        ({"init_states": []}, r"init_states=\[\]"),
        ({"init_states": 3}, "init_states=3"),
        ({"init_states": "nowhere.npz"}, "nowhere.npz"),
        ({"image_size": 0}, "image_size=0"),
        ({"max_steps": 0}, "max_steps=0"),
        ({"action_chunk": 2.5}, "action_chunk=2.5"),
        ({"orientation": "upside-down"}, "orientation='upside-down'"),
        ({"image_size": None, "wrist_image": True}, "image_size=None"),
        ({"orientation": ["vertical"]}, r"orientation=\['vertical'\]"),
        ({"suite": ["a"]}, r"suite=\['a'\]"),
        ({"task": ["a"]}, r"task=\['a'\]"),
        *(({"mesh_faces": v}, f"mesh_faces={v!r}") for v in (-1, "a", 0.5)),
        *(({"texture_size": v}, f"texture_size={v!r}") for v in (-1, 0, "a", float("nan"))),
        *(({name: "x"}, f"{name}='x'") for name in ("wrist_image", "process")),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_built(options, words):
    with pytest.raises(InvalidInput, match=words):
        gym.make("LIBERO-Long-v0", **options)


@pytest.mark.libero
def test_start_states_survive_the_file(tmp_path):
    task = catalog.find_task(0)
    saved = catalog.StartStates(catalog.initial_states(task)[:2], np.zeros((2, 2)), (0, 1), 0)
    loaded = catalog.start_states(task, saved.save(tmp_path / "s.npz"))
    assert np.array_equal(loaded.states, saved.states)
    assert loaded.settle_steps == 0


@pytest.mark.libero
@pytest.mark.parametrize(
    "change",
    [
        {"states": np.full((2, 5), 1.0)},
        {"states": np.full((2, 0), 1.0)},
        {"states": "nan"},
        {"states": "text"},
        {"gripper": np.full((2, 2), np.inf)},
        {"gripper": np.zeros((2, 3))},
        *({"settle_steps": v} for v in (-5, 10**12, np.zeros(2, int), 0.5, "ten")),
    ],
)
def test_start_states_that_cannot_be_simulated_are_refused(tmp_path, change):
    task = catalog.find_task(0)
    states = catalog.initial_states(task)[:2]
    if isinstance(change.get("states"), str):
        change = {"states": states * np.nan if change["states"] == "nan" else states.astype(str)}
    np.savez(tmp_path / "s.npz", **{"states": states, "gripper": np.zeros((2, 2)), "settle_steps": 0, **change})
    with pytest.raises(InvalidInput, match=r"s\.npz"):
        catalog.start_states(task, tmp_path / "s.npz")


@pytest.mark.libero
@pytest.mark.parametrize("damage", ["empty", "cut", "bytes", "npy", "text", "folder", "other"])
def test_a_file_that_holds_no_start_states_is_refused(tmp_path, damage):
    task, path = catalog.find_task(0), tmp_path / "s.npz"
    catalog.StartStates(catalog.initial_states(task)[:9], np.zeros((9, 2)), (0,), 0).save(path)
    whole = path.read_bytes()
    contents = {"empty": b"", "cut": whole[: len(whole) // 2], "text": b"text", "bytes": whole[:200] + b"\0" * 99 + whole[299:]}
    if damage in contents:
        path.write_bytes(contents[damage])
    elif damage == "folder":
        path.unlink()
        path.mkdir()
    elif damage == "npy":
        with path.open("wb") as file:
            np.save(file, np.zeros(3))
    else:
        np.savez(path, a=1)
    with pytest.raises(InvalidInput, match="not a file of start states"):
        catalog.start_states(task, path)


@pytest.mark.libero
def test_a_simulator_that_cannot_be_built_is_a_failure_of_ours(monkeypatch):
    def broken(scene):
        raise ValueError("no such asset")

    env = gym.make("LIBERO-Long-v0", process=False, image_size=None).unwrapped
    monkeypatch.setattr("wmrl_envs.envs.libero_long.Simulator", broken)
    with pytest.raises(InfrastructureError, match="ValueError: no such asset"):
        env.reset()
    with pytest.raises(InvalidInput, match=r"options=\[1\]"):
        env.reset(options=[1])
