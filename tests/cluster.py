"""A Ray cluster of two nodes on this machine, one CPU each, on which a dead node is noticed in seconds."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SETTINGS = {
    "health_check_initial_delay_ms": 1000, "health_check_period_ms": 500, "health_check_timeout_ms": 2000,
    "health_check_failure_threshold": 3,
    "worker_niceness": 0,  # Ray's 15 would starve beside other tests
}  # fmt: skip


@contextmanager
def two_nodes() -> Iterator[Any]:
    import ray
    from ray.cluster_utils import Cluster

    folder = tempfile.mkdtemp(prefix="ray-")  # a short name: Ray's sockets lie in it
    # Ray notes the cluster's address in its default folder, which exists only where `ray start` or `ray.init` has made it.
    os.environ |= {"RAY_AUTH_TOKEN_PATH": f"{folder}/token", "RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": folder}
    os.makedirs(os.path.join(folder, "ray"))
    node = {"num_cpus": 1, "object_store_memory": 80 << 20}
    head = node | {"include_dashboard": False, "temp_dir": folder, "_system_config": SETTINGS}
    for attempt in (1, 2, 3):
        cluster = Cluster()
        try:
            cluster.add_node(**head)
            cluster.add_node(**node)
            break
        except Exception:  # Ray gives a node 30 s to start, too little on a busy machine
            cluster.shutdown()
            if attempt == 3:
                raise
    try:
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
