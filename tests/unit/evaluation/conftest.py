import pytest

from tests.doubles import ObedientSandbox, write_competition

SLUG, OTHER = "amazon-employee-access-challenge", "spaceship-titanic"


@pytest.fixture(scope="session")
def dojo(tmp_path_factory):
    """Two competitions in a user's MLE-Dojo folder: (data_dir, submissions by slug)."""
    root = tmp_path_factory.mktemp("dojo")
    return root, {
        SLUG: write_competition(root, SLUG, "Id", "ACTION"),
        OTHER: write_competition(root, OTHER, "PassengerId", "Transported"),
    }


@pytest.fixture
def box():
    return ObedientSandbox()
