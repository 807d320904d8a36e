"""What a scheduler and a run keep in small files survives a machine that loses power as it is written."""

import os

import pytest

from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.jobs import Node
from dl2_scheduler.cluster.snapshot import JobState, Snapshot
from dl2_scheduler.learning.run_folder import RunFolder
from dl2_scheduler.live.exploration.explorer import Explorer
from dl2_scheduler.live.exploration.telling import Telling
from dl2_scheduler.live.policies import Policies
from dl2_scheduler.live.slot_decision import ask
from dl2_scheduler.policies.registry import make_live_policy
from tests.dl2_scheduler.clusters import job


def choose(folder):
    Policies(make_live_policy, "drf", folder).use("fifo")


def explore(folder):
    snapshot = Snapshot(3, 60.0, (Node("n", {"cpu": 8.0}),), (JobState(job(0)),))
    draft = ask(make_live_policy("drf"), snapshot, NodeRule.SPREAD)
    Explorer(0.02, folder, Telling).explored(draft, lambda draft: True)


def begin(folder):
    RunFolder(folder).write_settings({"seed": 1})


@pytest.mark.parametrize(
    ("write", "name"), [(choose, "policy.json"), (explore, "exploration.json"), (begin, "settings.json")]
)
def test_a_file_is_on_the_disk_before_it_takes_anothers_place(tmp_path, monkeypatch, write, name):
    """Else its name may be there before its bytes are, and nothing starts from an empty file."""
    usual, synced = os.fsync, []

    def fsync(descriptor):
        usual(descriptor)
        synced.append(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(os, "fsync", fsync)
    write(tmp_path)
    assert synced[-1:] == [(tmp_path / name).stat().st_ino]
