"""One simulator process at a time: each holds about a gigabyte."""

from functools import lru_cache

import pytest

from wmrl_envs.envs.libero import install
from wmrl_envs.errors import InfrastructureError, MissingExtra

SMALL = {"texture_size": 64, "image_size": 64, "mesh_faces": 5000}


@lru_cache(maxsize=1)
def absent() -> str | None:
    """What keeps LIBERO from running here: the extra, a renderer or a system library. A wrong MuJoCo is an error."""
    try:
        install.require()
        install.require_libraries()
    except (MissingExtra, InfrastructureError) as error:
        return str(error)
    return None


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("libero") and (reason := absent()):
            item.add_marker(pytest.mark.skip(reason=reason))
