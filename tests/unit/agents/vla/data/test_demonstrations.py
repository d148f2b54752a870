import json

import numpy as np
import pytest

pytest.importorskip("pyarrow")

from wmrl_envs.errors import InvalidInput
from wmrl_train.agents.vla.data.demonstrations import action_statistics, load_demonstrations
from wmrl_train.agents.vla.data.lerobot import LeRobotWriter, write_lerobot
from wmrl_train.agents.vla.data.record import Demonstration


def demonstration(steps=5, seed=0, wrist=True, **changes):
    rng = np.random.default_rng(seed)
    fields = {
        "instruction": f"task {seed % 2}",
        "actions": rng.uniform(-1, 1, (steps, 7)).astype(np.float32),
        "proprioception": rng.normal(size=(steps, 9)).astype(np.float32),
        "images": rng.integers(0, 256, (steps, 12, 10, 3), dtype=np.uint8),
        "wrist_images": rng.integers(0, 256, (steps, 12, 10, 3), dtype=np.uint8) if wrist else None,
        "success": seed != 1,
        "task": "T",
        "init_state": seed,
    }
    return Demonstration(**(fields | changes))


def same(one, other):
    for name in ("actions", "proprioception", "images", "wrist_images"):
        a, b = getattr(one, name), getattr(other, name)
        assert (a is None) == (b is None)
        assert a is None or (np.array_equal(a, b) and a.dtype == b.dtype)
    for name in ("instruction", "orientation", "success", "task", "init_state"):
        assert getattr(one, name) == getattr(other, name)


@pytest.mark.parametrize("wrist", [True, False])
def test_a_lerobot_dataset_reads_back_what_was_written(tmp_path, wrist):
    written = [demonstration(steps=3 + i, seed=i, wrist=wrist) for i in range(3)]
    root = write_lerobot(tmp_path / "data", written)
    read = list(load_demonstrations(root))
    assert len(read) == 3
    for one, other in zip(written, read, strict=True):
        same(one, other)


def test_the_metadata_is_lerobot_v3(tmp_path):
    import pandas as pd

    root = write_lerobot(tmp_path / "data", [demonstration(4, 0), demonstration(6, 1), demonstration(2, 2)])
    info = json.loads((root / "meta" / "info.json").read_text())
    assert (info["codebase_version"], info["total_episodes"], info["total_frames"], info["total_tasks"], info["fps"]) == (
        "v3.0",
        3,
        12,
        2,
        20,
    )
    assert info["features"]["action"]["shape"] == [7]
    tasks = pd.read_parquet(root / "meta" / "tasks.parquet")
    assert tasks.loc["task 1", "task_index"] == 1
    episodes = pd.read_parquet(root / "meta" / "episodes" / "chunk-000" / "file-000.parquet")
    assert episodes["dataset_from_index"].tolist() == [0, 4, 10]
    assert episodes["dataset_to_index"].tolist() == [4, 10, 12]
    frames = pd.read_parquet(root / "data" / "chunk-000" / "file-001.parquet")
    assert frames["index"].tolist() == list(range(4, 10))
    assert frames["task_index"].unique().tolist() == [1]
    np.testing.assert_allclose(frames["timestamp"], np.arange(6) / 20, rtol=1e-6)
    stats = json.loads((root / "meta" / "stats.json").read_text())
    assert stats["action"]["count"] == [12]
    assert np.shape(stats["observation.images.image"]["mean"]) == (3, 1, 1)


def test_another_orientation_is_refused_unless_converted(tmp_path):
    upright = demonstration()
    root = write_lerobot(tmp_path / "data", [upright.turned("rot180")])
    with pytest.raises(InvalidInput, match="'rot180', but 'vertical' was asked for"):
        list(load_demonstrations(root))
    (converted,) = load_demonstrations(root, convert=True)
    same(converted, upright)


@pytest.mark.parametrize("orientation", ["vertical", "rot180", "none"])
def test_turning_there_and_back_changes_nothing(orientation):
    one = demonstration()
    turned = one.turned(orientation)
    same(turned.turned("vertical"), one)
    expected = {"vertical": one.images, "rot180": one.images[:, :, ::-1], "none": one.images[:, ::-1]}[orientation]
    assert np.array_equal(turned.images, expected)


def test_bad_datasets_are_named(tmp_path):
    with pytest.raises(InvalidInput, match=r"meta/info\.json"):
        list(load_demonstrations(tmp_path))
    root = write_lerobot(tmp_path / "data", [demonstration()])
    info = json.loads((root / "meta" / "info.json").read_text())
    for change, words in (
        ({"codebase_version": "v2.1"}, "'v2.1'; expected v3.0"),
        ({"features": {k: v for k, v in info["features"].items() if k != "action"}}, "lacks action"),
    ):
        (root / "meta" / "info.json").write_text(json.dumps(info | change))
        with pytest.raises(InvalidInput, match=words):
            list(load_demonstrations(root))
    with pytest.raises(InvalidInput, match="already holds a dataset"):
        LeRobotWriter(root)
    with pytest.raises(InvalidInput, match="no demonstration"):
        write_lerobot(tmp_path / "empty", [])
    with pytest.raises(InvalidInput, match="does not fit"):
        write_lerobot(tmp_path / "mixed", [demonstration(), demonstration(wrist=False)])


def test_what_was_recorded_before_an_interruption_is_a_dataset(tmp_path):
    def interrupted():
        with LeRobotWriter(tmp_path / "data") as writer:
            writer.add(demonstration())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert len(list(load_demonstrations(tmp_path / "data"))) == 1


def test_malformed_demonstrations_are_refused():
    with pytest.raises(InvalidInput, match=r"\(5, 6\)"):
        demonstration(actions=np.zeros((5, 6)))
    with pytest.raises(InvalidInput, match="4 proprioception and 5 actions"):
        demonstration(proprioception=np.zeros((4, 9)))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"actions": np.full((5, 7), "a")}, "with actions"),
        ({"actions": np.full((5, 7), np.nan)}, "with actions that are not all finite"),
        ({"proprioception": np.full((5, 9), np.inf)}, "with proprioception that are not all finite"),
        ({"proprioception": np.zeros((5, 8))}, "with proprioception of shape"),
        ({"proprioception": None}, "with proprioception of shape"),
        ({"images": np.zeros((5, 4, 4, 3))}, r"with images .* \(float64\)"),
        ({"images": np.zeros((5, 4, 4), np.uint8)}, "with images of shape"),
        ({"images": np.zeros((4, 4, 4, 3), np.uint8)}, "4 images and 5 actions"),
        ({"wrist_images": np.zeros((5, 0, 4, 3), np.uint8)}, "with wrist_images of shape"),
        ({"orientation": "sideways"}, "orientation='sideways'"),
    ],
)
def test_every_part_of_a_demonstration_is_checked(change, words):
    with pytest.raises(InvalidInput, match=words):
        demonstration(**change)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("meta/info.json", b"[]"),
        ("meta/info.json", b"[" * 10**5),
        ("meta/info.json", b'{"codebase_version": "v3.0", "features": []}'),
        ("meta/wmrl.json", b"{bad"),
        ("meta/wmrl.json", b'{"episodes": []}'),
        ("meta/wmrl.json", b'{"orientation": "sideways", "episodes": [{}]}'),
        ("meta/wmrl.json", b'{"orientation": ["none"], "episodes": [{}]}'),
        ("meta/episodes/chunk-000/file-000.parquet", b"PAR1"),
        ("data/chunk-000/file-000.parquet", b"no parquet"),
    ],
)
def test_a_damaged_dataset_is_named(tmp_path, file, content):
    root = write_lerobot(tmp_path / "data", [demonstration()])
    (root / file).write_bytes(content)
    with pytest.raises(InvalidInput, match=str(root)):
        list(load_demonstrations(root))


def test_a_dataset_below_a_file_is_refused_before_the_first_episode(tmp_path):
    (tmp_path / "file").write_text("")
    for root in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InvalidInput, match="file is no folder"):
            LeRobotWriter(root)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        (None, None, None),
        ("obs/ee_ori", np.zeros((5, 4)), r"demo_0 .*ee_ori \(5, 4\)"),
        ("obs/ee_ori", np.zeros(5), r"demo_0 .*ee_ori \(5,\)"),
        ("obs/ee_pos", np.zeros((4, 3)), "demo_0"),
        ("obs/gripper_states", np.float64(1), "demo_0"),
        ("obs/agentview_rgb", np.zeros((4, 8, 8, 3), np.uint8), "demo_0 .*4 images and 5 actions"),
        ("actions", np.full((5, 7), b"left"), "demo_0"),
        ("actions", np.full((5, 7), np.nan), "demo_0 .*finite"),
        ("obs", np.zeros(3), "demo_0"),
        ("", np.zeros(3), "demo_0"),
    ],
)
def test_a_libero_file_with_data_of_another_kind_is_refused_by_its_demonstration(tmp_path, name, value, words):
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "x_demo.hdf5"
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["problem_info"] = json.dumps({"language_instruction": "lift"})
        one = {"actions": np.zeros((5, 7)), "obs/agentview_rgb": np.zeros((5, 8, 8, 3), np.uint8), "obs/ee_pos": np.zeros((5, 3)),
               "obs/ee_ori": np.zeros((5, 3)), "obs/gripper_states": np.zeros((5, 2))}  # fmt: skip
        for key, array in one.items():
            data[f"demo_0/{key}"] = array
        if name is not None:
            place = f"demo_0/{name}".rstrip("/")
            del data[place]
            data[place] = value
    if words is None:
        assert len(list(load_demonstrations(path, convert=True))) == 1
    else:
        with pytest.raises(InvalidInput, match=words):
            list(load_demonstrations(path, convert=True))


def test_idle_steps_are_dropped_but_gripper_changes_stay():
    actions = np.zeros((5, 7), np.float32)
    actions[:, 6] = [-1, -1, 1, 1, 1]
    actions[4, 0] = 0.5
    kept = demonstration(actions=actions).without_idling()
    assert np.array_equal(kept.actions, actions[[0, 2, 4]])
    assert len(kept.images) == len(kept.wrist_images) == 3


def test_chunks_repeat_the_last_action_at_the_end():
    one = demonstration(steps=4)
    chunks = one.chunks(3)
    assert chunks.shape == (4, 3, 7)
    assert np.array_equal(chunks[1], one.actions[1:4])
    assert np.array_equal(chunks[3], np.repeat(one.actions[3:], 3, axis=0))


def test_statistics_leave_the_gripper_alone():
    statistics = action_statistics([demonstration(50, 0), demonstration(50, 1)])
    assert statistics["mask"] == [True] * 6 + [False]
    assert all(low < high for low, high in zip(statistics["q01"], statistics["q99"], strict=True))


class TestHdf5:
    def file(self, path, drop=(), convention="opengl", steps=4):
        h5py = pytest.importorskip("h5py")
        rng = np.random.default_rng(0)
        with h5py.File(path, "w") as f:
            data = f.create_group("data")
            data.attrs["problem_info"] = json.dumps({"language_instruction": ["turn on the stove"]})
            data.attrs["macros_image_convention"] = convention
            for i in (10, 2):
                demo = data.create_group(f"demo_{i}")
                demo["actions"] = rng.uniform(-1, 1, (steps + i, 7))
                obs = demo.create_group("obs")
                obs["agentview_rgb"] = rng.integers(0, 256, (steps + i, 8, 8, 3), dtype=np.uint8)
                obs["eye_in_hand_rgb"] = rng.integers(0, 256, (steps + i, 8, 8, 3), dtype=np.uint8)
                obs["ee_pos"], obs["ee_ori"] = rng.normal(size=(steps + i, 3)), np.tile([np.pi, 0, 0], (steps + i, 1))
                obs["gripper_states"] = rng.normal(size=(steps + i, 2))
                for key in drop:
                    if key in obs:
                        del obs[key]
            for key in drop:
                if key in data.attrs:
                    del data.attrs[key]
        return path

    def test_libero_files_are_read_in_order_with_raw_pictures(self, tmp_path):
        path = self.file(tmp_path / "stove_demo.hdf5")
        read = list(load_demonstrations(path, "none"))
        assert [len(d) for d in read] == [6, 14]
        assert read[0].instruction == "turn on the stove"
        assert read[0].task == "stove"
        np.testing.assert_allclose(read[0].proprioception[0, 3:7], [1, 0, 0, 0], atol=1e-6)
        with pytest.raises(InvalidInput, match="'none', but 'vertical'"):
            list(load_demonstrations(path))
        (first, _) = load_demonstrations(path, convert=True)
        assert np.array_equal(first.images, read[0].images[:, ::-1])

    @pytest.mark.parametrize(
        ("key", "words"), [("agentview_rgb", "obs/agentview_rgb"), ("ee_pos", "obs/ee_pos"), ("problem_info", "problem_info")]
    )
    def test_missing_keys_are_named(self, tmp_path, key, words):
        path = self.file(tmp_path / "bad.hdf5", drop=(key,))
        with pytest.raises(InvalidInput, match=words):
            list(load_demonstrations(path, "none"))

    def test_a_file_that_is_no_hdf5_is_named(self, tmp_path):
        pytest.importorskip("h5py")
        path = tmp_path / "x.hdf5"
        path.write_text("hello")
        with pytest.raises(InvalidInput, match=r"x\.hdf5: not a readable HDF5 file"):
            list(load_demonstrations(path))
