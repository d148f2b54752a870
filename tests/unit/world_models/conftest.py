import pytest

from wmrl_envs.world_models.static.index.api import load_index


@pytest.fixture(scope="session")
def index():
    return load_index()


@pytest.fixture(autouse=True)
def no_gap_in_the_rules(caplog):
    """The static analysis survives an error of its own by giving up on the program; in tests that is a failure."""
    yield
    assert "gave up" not in caplog.text
