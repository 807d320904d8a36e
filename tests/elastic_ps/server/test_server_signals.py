"""SIGTERM to the program of a server: it asks to be drained, and ends at a second one."""

import os
import signal
import threading

import pytest

from elastic_ps.server import __main__ as program
from elastic_ps.system.process.signals import SignalCount


def test_two_signals_at_once_drain_and_a_later_one_ends(monkeypatch):
    now, leave = [7.0], threading.Event()
    monkeypatch.setattr(program, "SignalCount", lambda seconds: SignalCount(seconds, lambda: now[0]))
    before = signal.getsignal(signal.SIGTERM)
    try:
        program._drain_on_sigterm(leave)
        for later in (0.0, 0.005):
            now[0] += later
            os.kill(os.getpid(), signal.SIGTERM)
            assert leave.is_set()
        now[0] += 1.5
        with pytest.raises(SystemExit, match="143"):
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
