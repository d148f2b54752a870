"""The Ray sandbox on a cluster of two nodes on this machine (`make test-ray`, in an environment that has Ray)."""

import shutil
import threading
import time

import pytest

from tests.cluster import two_nodes
from tests.unit.execution.conftest import LIMITS, wait_until
from wmrl_envs.errors import InfrastructureError, InvalidInput
from wmrl_envs.execution import Job, RaySandbox, make_sandbox
from wmrl_envs.execution.cluster import shipping
from wmrl_envs.outcome import ExecutionStatus

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

PROGRAM = "import time\ntime.sleep(1.5)\nprint('job', {i})\nopen(SUBMISSION_PATH, 'w').write('id,y\\n{i},0\\n')"


@pytest.fixture(scope="module")
def cluster(environment):
    pytest.importorskip("ray", reason="needs the extra [ray]: make test-ray")
    with two_nodes() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def many(cluster, environment):
    with make_sandbox("ray", inner="process", options={"environment": str(environment.root)}) as box:
        yield box


def test_every_node_is_asked_before_a_run_starts(many, cluster, warm_box):
    assert (many.slots, many.lock, many.tier) == (2, warm_box.lock, warm_box.tier)
    with pytest.raises(InvalidInput, match="has the 64 CPU of an execution"):
        RaySandbox("process", cpus=64)
    with pytest.raises(InvalidInput, match=r"no usable sandbox.*nowhere"):
        RaySandbox("process", options={"environment": "nowhere"})
    with pytest.raises(InvalidInput, match="expected 'auto', 'process' or 'docker'"):
        RaySandbox("replay")


def test_programs_end_as_they_do_on_this_machine(many, warm_box, data_dir):
    programs = ["print(open(DATA_DIR + '/train.csv').read()[:7])", "1/0", "import sys; sys.exit(3)", "\0"]
    for program in programs:
        far, near = (box.run(program, data_dir, LIMITS) for box in (many, warm_box))
        assert (far.status, far.exit_code, far.stdout, far.stderr) == (near.status, near.exit_code, near.stdout, near.stderr)
    with pytest.raises(InvalidInput, match="does not exist"):
        many.run("1", data_dir / "absent", LIMITS)


def test_a_node_without_the_data_is_sent_it_once(many, data_dir, monkeypatch):
    (data_dir / "deep").mkdir()
    (data_dir / "deep" / "notes.txt").write_text("from far")
    monkeypatch.setattr(shipping, "signature", lambda folder: f"{folder} as another machine sees it")  # in the driver alone
    program = "import os\nprint(open(DATA_DIR + '/deep/notes.txt').read(), sorted(os.listdir(DATA_DIR)))"
    packed, pack = [], shipping.pack
    monkeypatch.setattr(shipping, "pack", lambda *arguments: packed.append(pack(*arguments)) or packed[-1])
    runs = [many.run(program, data_dir, LIMITS) for _ in range(3)]
    try:
        assert {run.stdout for run in runs} == {f"from far {sorted(p.name for p in data_dir.iterdir())}\n"}
        assert len(packed) == 1
        assert shipping.copy_of(packed[0]).is_dir()
    finally:
        shutil.rmtree(shipping.copy_of(packed[0]))


def test_close_ends_what_runs(cluster, environment, data_dir):
    box = RaySandbox("process", options={"environment": str(environment.root)})
    ended = []

    def run():
        with pytest.raises(InfrastructureError):
            box.run("import time; print('begun'); time.sleep(30)", data_dir, LIMITS)
        ended.append(time.monotonic())

    waiting = threading.Thread(target=run)
    waiting.start()
    assert wait_until(lambda: box._running)
    time.sleep(1)
    box.close()
    waiting.join(20)
    assert ended
    with pytest.raises(InvalidInput, match="closed"):
        box.run("1", data_dir, LIMITS)


def test_a_node_that_dies_in_mid_run_loses_nothing(many, cluster, warm_box, data_dir):
    """Runs last: the second node is gone afterwards."""
    jobs = [Job(PROGRAM.format(i=i), data_dir, LIMITS) for i in range(8)]
    victim = next(node for node in cluster.worker_nodes)
    answers, done = [], []
    running = threading.Thread(target=lambda: answers.extend(many.run_many(jobs, concurrency=4)))
    job_done, original = threading.Event(), many._ask

    def counted(*arguments):
        execution = original(*arguments)
        done.append(execution)
        if len(done) == 2:
            job_done.set()
        return execution

    many._ask = counted
    running.start()
    assert job_done.wait(120)
    time.sleep(0.5)  # both nodes are in the middle of the next programs
    cluster.remove_node(victim, allow_graceful=False)
    running.join(300)
    many._ask = original
    assert [a.status for a in answers] == [ExecutionStatus.OK] * len(jobs), answers
    expected = warm_box.run_many(jobs, concurrency=2)
    assert [(a.stdout, a.submission) for a in answers] == [(e.stdout, e.submission) for e in expected]
    assert many.slots == 1
