"""Where executions run."""

import threading

import pytest

from wmrl_envs.anchoring import lanes
from wmrl_envs.anchoring.lanes import HERE, Threads, settle


class Clock:
    """Stands still unless a job lets it go on; per thread, as jobs run side by side."""

    def __init__(self, monkeypatch):
        self.local = threading.local()
        monkeypatch.setattr(lanes.time, "perf_counter", lambda: getattr(self.local, "now", 0.0))

    def job(self, seconds):
        self.local.now = getattr(self.local, "now", 0.0) + seconds
        return threading.get_ident()


def threads_of(lane, clock, durations):
    return {job.result() for job in lane.start(clock.job, durations)}


def test_jobs_too_short_to_hand_over_stay_in_the_callers_thread_until_one_is_slow(monkeypatch):
    clock, lane, own = Clock(monkeypatch), Threads(4), {threading.get_ident()}
    for _ in range(4):
        assert not threads_of(lane, clock, [0.0001] * 4) & own
    assert threads_of(lane, clock, [0.0001] * 4) == own
    assert threads_of(lane, clock, [0.2] * 4) == own
    assert not threads_of(lane, clock, [0.2] * 4) & own
    lane.close()


def test_a_slow_job_now_and_then_changes_nothing_and_mostly_slow_ones_go_to_the_threads(monkeypatch):
    clock, lane, own = Clock(monkeypatch), Threads(4), {threading.get_ident()}
    for _ in range(4):
        threads_of(lane, clock, [0.0001, 0.0001, 0.0001, 0.5])
    assert threads_of(lane, clock, [0.0001]) == own
    lane.close()
    busy = Threads(4)
    for _ in range(8):
        assert not threads_of(busy, clock, [0.0001, 0.5, 0.5, 0.5]) & own
    busy.close()


def test_without_workers_and_in_the_callers_lane_everything_is_done_at_once():
    for lane in (Threads(0), HERE):
        assert [job.result() for job in lane.start(lambda i: (i, threading.get_ident()), [1, 2])] == [
            (1, threading.get_ident()), (2, threading.get_ident())]  # fmt: skip


def test_settled_jobs_are_over():
    lane, go = Threads(1), threading.Event()
    jobs = lane.start(lambda _: go.wait(20), range(3))
    threading.Timer(0.05, go.set).start()
    settle(jobs)
    assert all(job.done() for job in jobs)
    assert jobs[2].cancelled()
    lane.close()


def test_what_a_job_raises_is_raised_where_its_result_is_asked_for():
    def fails(_):
        raise KeyError("a bug")

    lane = Threads(2)
    (job,) = lane.start(fails, [0])
    with pytest.raises(KeyError):
        job.result()
    lane.close()
