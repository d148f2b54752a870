"""One simulator process at a time: each holds about a gigabyte."""

import importlib.util

import pytest

HAS_LIBERO = importlib.util.find_spec("libero") is not None
SMALL = {"texture_size": 64, "image_size": 64}


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("libero") and not HAS_LIBERO:
            item.add_marker(pytest.mark.skip(reason="needs the extra [libero]"))
