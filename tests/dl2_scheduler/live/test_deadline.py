"""Policies that never answer, or end the program: the slot is decided all the same, and the scheduler can be ended."""

import signal
import subprocess
import sys
import threading
from contextlib import closing

import pytest

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.free_resources import FreeResources, NodeRule
from dl2_scheduler.commands.cluster.serving.driving import fitted_by
from dl2_scheduler.live.deadline import Bounded
from dl2_scheduler.live.history import HISTORY_FILE, History
from dl2_scheduler.live.policies import Policies
from dl2_scheduler.live.slot_decision import answer_or_fall_back
from dl2_scheduler.policies.rules.drf import Drf
from dl2_scheduler.policies.user_policy import make_own
from tests.dl2_scheduler.live.test_slot_limits import snapshot_of

SOON = 0.05
TWICE = """
import signal, sys
from dl2_scheduler.commands.cluster.serving.foreground import signals_to
with signals_to(lambda: print("asked", flush=True)):
    signal.raise_signal(signal.SIGTERM)
    print("goes on", flush=True)
    signal.raise_signal(signal.SIGTERM)
    print("never here", flush=True)
"""


class Forever:
    """Whatever happens to it."""

    def allocate(self, snapshot, room):
        while True:
            try:
                while True:
                    pass
            except Exception:  # noqa: BLE001  # as policies may
                pass


class Ends:
    def allocate(self, snapshot, room):
        sys.exit("enough")


def test_a_policy_that_never_answers():
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(TimeoutError, match=r"no answer after 0\.05 s"):
        Bounded(Forever(), SOON).allocate(snapshot_of(4, (0, 0)), None)
    assert (signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)) == (before, (0.0, 0.0))
    decided = answer_or_fall_back(Bounded(Forever(), SOON), Drf(), snapshot_of(4, (0, 0)), NodeRule.SPREAD)
    assert decided.fault == "it raised TimeoutError: no answer after 0.05 s"
    assert decided.draft.allocation.grants["j0"].workers == 2


def test_elsewhere_than_in_the_main_thread_it_has_all_the_time():
    found, snapshot = [], snapshot_of(4, (0, 0))
    bounded = Bounded(Drf(), SOON)
    thread = threading.Thread(target=lambda: found.append(bounded.allocate(snapshot, FreeResources(snapshot))))
    thread.start()
    thread.join()
    assert [allocation.grants["j0"].workers for allocation in found] == [2]


def test_policies_of_others_are_bounded_and_ours_are_not(tmp_path):
    with closing(History(tmp_path / HISTORY_FILE)) as history:
        make = fitted_by(history)
        assert isinstance(make("examples.fewest_epochs_first:FewestEpochsFirst"), Bounded)
        assert isinstance(make("drf"), Drf)


def test_a_policy_that_ends_the_program():
    decided = answer_or_fall_back(Ends(), Drf(), snapshot_of(4, (0, 0)), NodeRule.SPREAD)
    assert decided.fault == "it raised SystemExit: enough"


def test_a_module_that_ends_the_program(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "ends_the_program.py").write_text("import sys; sys.exit(3)")
    with pytest.raises(BadInput, match="cannot be made: SystemExit: 3"):
        make_own("ends_the_program:Policy")


def test_the_loop_does_not_wait_for_a_policy_that_is_being_made(tmp_path):
    asked, goes_on = threading.Event(), threading.Event()

    def make(name):
        if name.startswith("slow"):
            asked.set()
            assert goes_on.wait(20)
        return Drf()

    policies = Policies(make, "drf", tmp_path)
    uses = [
        threading.Thread(target=policies.use, args=("slow",)),
        threading.Thread(target=policies.use_shadow, args=("slow, beside",)),
    ]
    for thread in uses:
        thread.start()
        assert asked.wait(20)
        asked.clear()
    assert policies.for_slot().name == "drf"
    goes_on.set()
    for thread in uses:
        thread.join()
    assert (policies.for_slot().name, policies.for_slot().shadow_name) == ("slow", "slow, beside")


def test_what_does_not_end_by_the_first_signal_ends_by_the_second():
    ended = subprocess.run([sys.executable, "-c", TWICE], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.stdout.split("\n"), ended.returncode) == (["asked", "goes on", ""], -signal.SIGTERM)
