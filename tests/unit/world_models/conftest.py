import pytest

from wmrl_envs.world_models.api_index import load_index


@pytest.fixture(scope="session")
def index():
    return load_index()
