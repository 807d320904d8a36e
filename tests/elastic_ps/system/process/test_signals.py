"""Signals that end a program reach it, but those that it was begun to ignore."""

import os
import signal

import pytest

from elastic_ps.system.process.signals import SignalCount, ignore_sigterm, signals_to


@pytest.fixture(autouse=True)
def kept():
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
    before = {number: signal.signal(number, signal.SIG_DFL) for number in numbers}  # a shell may have these ignored
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def heard(*numbers):
    """The signals that a program is told which gets these."""
    told = []
    with signals_to(told.append):
        for number in numbers:
            os.kill(os.getpid(), number)
    return told


def test_those_that_end_a_program_are_handed_on_and_the_handlers_before_come_back():
    assert heard(signal.SIGHUP, signal.SIGINT, signal.SIGTERM) == [signal.SIGHUP, signal.SIGINT, signal.SIGTERM]
    assert {signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGTERM)} == {signal.SIG_DFL}


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_one_of_the_terminal_that_was_ignored_from_the_start_stays_so(number):
    """`nohup elasticrun` ended its job when the terminal went."""
    signal.signal(number, signal.SIG_IGN)
    assert heard(number, signal.SIGTERM) == [signal.SIGTERM]
    assert signal.getsignal(number) is signal.SIG_IGN


def test_the_ends_of_children_are_heard_of_whatever_the_parent_ignores():
    """Who waits for one is told that it has none, at once or never."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    heard()
    child = os.fork()
    if not child:
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_a_signal_that_has_been_sent_twice_at_once_is_one():
    times = iter([5.0, 5.005, 5.9, 6.0, 6.1])
    count = SignalCount(1.0, lambda: next(times))
    assert [count.heard() for _ in range(5)] == [1, 0, 0, 2, 2]


def test_a_process_that_ignores_sigterm_does_not_hand_that_on():
    """A script's own `multiprocessing.Pool` would wait for ever for its processes, which it ends so."""
    ignore_sigterm()
    os.kill(os.getpid(), signal.SIGTERM)
    child = os.fork()
    if not child:
        os.kill(os.getpid(), signal.SIGTERM)
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
