"""LeRobot's dataset format v3.0, written and read without the lerobot package: parquet with embedded PNG pictures.

    meta/info.json  meta/tasks.parquet  meta/stats.json  meta/episodes/chunk-000/file-000.parquet
    data/chunk-000/file-000.parquet     one file an episode here; readers follow the paths in `meta/episodes`

`meta/wmrl.json` adds what LeRobot has no place for: the orientation of the pictures, and success, task and initial state of
each episode.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from wmrl_envs.errors import InvalidInput, MissingExtra, WmrlError
from wmrl_train.agents.vla.data.record import FPS, Demonstration
from wmrl_train.run.outputs import require_folder

_IMAGE, _WRIST, _STATE = "observation.images.image", "observation.images.wrist_image", "observation.state"
_INDEX = {"timestamp": "float32", "frame_index": "int64", "episode_index": "int64", "index": "int64", "task_index": "int64"}
_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
_FILES_A_CHUNK = 1000
_STATE_NAMES = ["x", "y", "z", "qx", "qy", "qz", "qw", "finger_left", "finger_right"]
_ACTION_NAMES = ["x", "y", "z", "roll", "pitch", "yaw", "gripper"]


class LeRobotWriter:
    """Writes demonstrations one at a time; the dataset is complete after `close` (or the `with` block)."""

    def __init__(self, root: str | Path, robot: str = "panda"):
        _parquet()
        self.root, self._robot = require_folder(root), robot
        if (self.root / "meta" / "info.json").exists():
            raise InvalidInput(f"{self.root} already holds a dataset; choose another folder or remove it.")
        self._tasks: dict[str, int] = {}
        self._episodes: list[dict[str, Any]] = []
        self._ours: list[dict[str, Any]] = []
        self._numbers: dict[str, list[np.ndarray]] = {_STATE: [], "action": []}
        self._pixels: dict[str, list[np.ndarray]] = {}
        self._features: dict[str, Any] | None = None
        self._orientation: str | None = None
        self._frames = 0

    def add(self, demonstration: Demonstration) -> None:
        """Append one episode."""
        arrow, parquet = _parquet()
        views = {_IMAGE: demonstration.images}
        if demonstration.wrist_images is not None:
            views[_WRIST] = demonstration.wrist_images
        features = _features(views)
        if self._features not in (None, features) or self._orientation not in (None, demonstration.orientation):
            raise InvalidInput(
                f"{self.root}: an episode with {sorted(views)} of {demonstration.images.shape[1:]} "
                f"({demonstration.orientation}) does not fit the episodes before it."
            )
        self._features, self._orientation = features, demonstration.orientation
        episode, steps = len(self._episodes), len(demonstration)
        task = self._tasks.setdefault(demonstration.instruction, len(self._tasks))
        counters = {
            "timestamp": np.arange(steps, dtype=np.float32) / np.float32(FPS),
            "frame_index": np.arange(steps),
            "episode_index": np.full(steps, episode),
            "index": np.arange(self._frames, self._frames + steps),
            "task_index": np.full(steps, task),
        }
        columns: dict[str, Any] = {}
        for name, pictures in views.items():
            cells = [{"bytes": _png(p), "path": f"frame-{i:06d}.png"} for i, p in enumerate(pictures)]
            columns[name] = arrow.array(cells, type=arrow.struct([("bytes", arrow.binary()), ("path", arrow.string())]))
            self._pixels.setdefault(name, []).append(pictures[:: max(1, steps // 20)])
        for name, rows in ((_STATE, demonstration.proprioception), ("action", demonstration.actions)):
            columns[name] = arrow.array(list(rows.astype(np.float32)), type=arrow.list_(arrow.float32(), rows.shape[1]))
            self._numbers[name].append(rows)
        columns |= {name: arrow.array(values, type=getattr(arrow, _INDEX[name])()) for name, values in counters.items()}
        table = arrow.table(columns).replace_schema_metadata(
            {"huggingface": json.dumps({"info": {"features": _hugging_face(features)}})}
        )

        chunk, file = divmod(episode, _FILES_A_CHUNK)
        path = self.root / _PATH.format(chunk_index=chunk, file_index=file)
        path.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(table, path)
        self._episodes.append(
            {
                "episode_index": episode,
                "tasks": [demonstration.instruction],
                "length": steps,
                "data/chunk_index": chunk,
                "data/file_index": file,
                "dataset_from_index": self._frames,
                "dataset_to_index": self._frames + steps,
                "meta/episodes/chunk_index": 0,
                "meta/episodes/file_index": 0,
            }
        )
        self._ours.append(
            {"success": demonstration.success, "task": demonstration.task, "init_state": demonstration.init_state}
        )
        self._frames += steps

    def close(self) -> None:
        """Write the metadata."""
        import pandas as pd

        if self._features is None:
            raise InvalidInput(f"{self.root}: no demonstration was recorded, so there is no dataset to write.")
        meta = self.root / "meta"
        (meta / "episodes" / "chunk-000").mkdir(parents=True, exist_ok=True)
        info = {
            "codebase_version": "v3.0",
            "robot_type": self._robot,
            "total_episodes": len(self._episodes),
            "total_frames": self._frames,
            "total_tasks": len(self._tasks),
            "chunks_size": _FILES_A_CHUNK,
            "data_files_size_in_mb": 100,
            "video_files_size_in_mb": 200,
            "fps": FPS,
            "splits": {"train": f"0:{len(self._episodes)}"},
            "data_path": _PATH,
            "video_path": None,
            "features": self._features,
        }
        (meta / "info.json").write_text(json.dumps(info, indent=2))
        (meta / "stats.json").write_text(json.dumps(self._statistics(), indent=2))
        (meta / "wmrl.json").write_text(json.dumps({"orientation": self._orientation, "episodes": self._ours}, indent=2))
        index = pd.Index(list(self._tasks), name="task")
        pd.DataFrame({"task_index": list(self._tasks.values())}, index=index).to_parquet(meta / "tasks.parquet")
        pd.DataFrame(self._episodes).to_parquet(meta / "episodes" / "chunk-000" / "file-000.parquet")

    def _statistics(self) -> dict[str, Any]:
        statistics = {}
        for name, parts in self._numbers.items():
            statistics[name] = _describe(np.concatenate(parts), axis=0)
        for name, parts in self._pixels.items():
            pixels = np.concatenate(parts).astype(np.float32) / 255.0  # a sample of the frames, as LeRobot does
            statistics[name] = {
                k: np.reshape(v, (3, 1, 1)).tolist() if k != "count" else v for k, v in _describe(pixels, (0, 1, 2)).items()
            }
        return statistics

    def __enter__(self) -> LeRobotWriter:
        return self

    def __exit__(self, error: object, *rest: object) -> None:
        if error is None or self._episodes:  # what was recorded before an interruption is a dataset too
            self.close()


def read_lerobot(root: str | Path) -> Iterator[Demonstration]:
    """Demonstrations of a v3.0 dataset with embedded pictures. A dataset of others counts as rot180, as published LIBERO
    datasets are.
    """
    try:
        yield from _read(Path(root))
    except WmrlError:
        raise
    except Exception as error:  # whatever json, pyarrow and PIL raise on files of another kind
        raise InvalidInput(
            f"{root}: not a readable LeRobot dataset ({type(error).__name__}: {str(error)[:200]}); expected format "
            f"v3.0, complete."
        ) from error


def _read(root: Path) -> Iterator[Demonstration]:
    _, parquet = _parquet()
    try:
        info = json.loads((root / "meta" / "info.json").read_text())
    except (OSError, ValueError):
        raise InvalidInput(
            f"{root}: no readable meta/info.json; expected a LeRobot dataset (a folder) or a LIBERO .hdf5 file."
        ) from None
    if not isinstance(info, dict) or not isinstance(info.get("features"), dict):
        raise InvalidInput(f"{root}: meta/info.json describes no features; expected that of a LeRobot dataset.")
    if not str(info.get("codebase_version", "")).startswith("v3"):
        raise InvalidInput(
            f"{root}: LeRobot format {info.get('codebase_version')!r}; expected v3.0 (lerobot converts older ones)."
        )
    image, wrist = _views(root, info)
    ours = json.loads((root / "meta" / "wmrl.json").read_text()) if (root / "meta" / "wmrl.json").is_file() else {}
    episodes = [
        row for file in sorted((root / "meta" / "episodes").glob("*/*.parquet")) for row in parquet.read_table(file).to_pylist()
    ]
    for row in sorted(episodes, key=lambda row: row["episode_index"]):
        file = root / info["data_path"].format(chunk_index=row["data/chunk_index"], file_index=row["data/file_index"])
        if not file.is_file():
            raise InvalidInput(
                f"{root}: episode {row['episode_index']} should be in {file.relative_to(root)}, which does not exist."
            )
        table = parquet.read_table(file, filters=[("episode_index", "=", row["episode_index"])])
        own = ours["episodes"][row["episode_index"]] if ours else {}
        try:
            demonstration = Demonstration(
                instruction=row["tasks"][0],
                actions=np.array(table["action"].to_pylist(), np.float32),
                proprioception=np.array(table[_STATE].to_pylist(), np.float32),
                images=_pictures(table[image]),
                wrist_images=_pictures(table[wrist]) if wrist else None,
                orientation=ours.get("orientation", "rot180"),
                success=own.get("success", True),
                task=own.get("task", ""),
                init_state=own.get("init_state"),
            )
        except InvalidInput as error:
            raise InvalidInput(f"{root}: episode {row['episode_index']}: {error}") from None
        yield demonstration


def _views(root: Path, info: dict[str, Any]) -> tuple[str, str | None]:
    features = info.get("features", {})
    missing = [key for key in ("action", _STATE) if key not in features]
    cameras = sorted(key for key, f in features.items() if f.get("dtype") == "image")
    if any(f.get("dtype") == "video" for f in features.values()) and not cameras:
        raise InvalidInput(
            f"{root}: pictures are stored as video; expected embedded images (write the dataset with use_videos=False)."
        )
    if not cameras:
        missing.append("an image feature")
    if missing:
        raise InvalidInput(f"{root}: the dataset lacks {', '.join(missing)}.")
    wrist = next((key for key in cameras if "wrist" in key or key.endswith("image2")), None)
    return next(key for key in cameras if key != wrist or len(cameras) == 1), wrist if len(cameras) > 1 else None


def _features(views: dict[str, np.ndarray]) -> dict[str, Any]:
    images = {
        name: {"dtype": "image", "shape": list(p.shape[1:]), "names": ["height", "width", "channel"]}
        for name, p in views.items()
    }
    return {
        **images,
        _STATE: {"dtype": "float32", "shape": [9], "names": _STATE_NAMES},
        "action": {"dtype": "float32", "shape": [7], "names": _ACTION_NAMES},
        **{name: {"dtype": kind, "shape": [1], "names": None} for name, kind in _INDEX.items()},
    }


def _hugging_face(features: dict[str, Any]) -> dict[str, Any]:
    """The `datasets` schema, so that pictures are decoded by readers that know it."""

    def one(feature: dict[str, Any]) -> dict[str, Any]:
        if feature["dtype"] == "image":
            return {"_type": "Image"}
        value = {"dtype": feature["dtype"], "_type": "Value"}
        return value if feature["shape"] == [1] else {"feature": value, "length": feature["shape"][0], "_type": "Sequence"}

    return {name: one(feature) for name, feature in features.items()}


def _describe(values: np.ndarray, axis: Any) -> dict[str, Any]:
    quantiles = {f"q{q:02d}": np.quantile(values, q / 100, axis=axis).tolist() for q in (1, 10, 50, 90, 99)}
    moments = {name: getattr(values, name)(axis=axis).tolist() for name in ("min", "max", "mean", "std")}
    return {**moments, **quantiles, "count": [len(values)]}


def _png(picture: np.ndarray) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, format="PNG", compress_level=1)
    return buffer.getvalue()


def _pictures(column: Any) -> np.ndarray:
    from PIL import Image

    return np.stack([np.asarray(Image.open(io.BytesIO(cell["bytes"])).convert("RGB")) for cell in column.to_pylist()])


def _parquet() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("pyarrow", "libero", "Reading and writing LeRobot datasets") from None
    return pyarrow, pyarrow.parquet


def write_lerobot(root: str | Path, demonstrations: Iterable[Demonstration]) -> Path:
    """Write all of them."""
    with LeRobotWriter(root) as writer:
        for demonstration in demonstrations:
            writer.add(demonstration)
    return Path(root)
