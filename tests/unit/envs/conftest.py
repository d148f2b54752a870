import pytest

from tests.doubles import ObedientSandbox, write_competition


@pytest.fixture(scope="session")
def dojo(tmp_path_factory):
    """Two competitions in a user's MLE-Dojo folder: (data_dir, submissions by slug)."""
    root = tmp_path_factory.mktemp("dojo")
    submissions = {
        "amazon-employee-access-challenge": write_competition(root, "amazon-employee-access-challenge", "Id", "ACTION"),
        "spaceship-titanic": write_competition(root, "spaceship-titanic", "PassengerId", "Transported"),
    }
    return root, submissions


@pytest.fixture
def box():
    return ObedientSandbox()
