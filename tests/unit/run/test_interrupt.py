import signal

import pytest

from wmrl_train.run.interrupt import Interrupts


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_block_at_once(number):
    with pytest.raises(KeyboardInterrupt), Interrupts().caught():
        signal.raise_signal(number)


def test_a_held_block_is_finished_first_and_a_second_signal_is_not_held():
    interrupts, done = Interrupts(), []
    with interrupts.caught():
        with interrupts.held():
            signal.raise_signal(signal.SIGINT)
            done.append("the block")
        assert interrupts.asked
        with pytest.raises(KeyboardInterrupt), interrupts.held():
            signal.raise_signal(signal.SIGINT)
    assert done == ["the block"]


def test_the_handlers_of_before_come_back():
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with Interrupts().caught():
        assert signal.getsignal(signal.SIGINT) is not before[0]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
