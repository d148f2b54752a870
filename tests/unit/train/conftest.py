import pytest

from tests.doubles import tiny_model


@pytest.fixture(scope="session")
def tiny():
    """A random Llama of about 30 thousand parameters and its character tokenizer; tests that change weights deep-copy it."""
    return tiny_model()
