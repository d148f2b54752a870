import pytest


def pytest_collection_modifyitems(items):
    for item in items:
        if "/tests/vllm/" in str(item.path):
            item.add_marker(pytest.mark.timeout(1800))  # the first request compiles kernels


@pytest.fixture(scope="session")
def model_directory():
    from wmrl_train.engines.models import check_model

    return str(check_model("smollm2"))


@pytest.fixture(scope="session")
def engine(model_directory):
    pytest.importorskip("vllm", reason="needs the environment of `make test-vllm`")
    from wmrl_train.engines import make_engine

    options = {"dtype": "float32", "max_model_len": 4096, "max_num_seqs": 16, "enforce_eager": True}
    made = make_engine("vllm", model_directory, **options)
    yield made
    made.close()


@pytest.fixture(scope="session")
def reference(model_directory):
    from wmrl_train.engines import make_engine

    return make_engine("transformers", model_directory, device="cpu")
