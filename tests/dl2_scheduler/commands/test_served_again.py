"""What `dl2 serve` finds in a folder of which somebody has deleted a part."""

from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace

from dl2_scheduler.backends.local.tasks.isolation import IsolationMode
from dl2_scheduler.cluster.interfaces import JobOutcome, SlotOutcome
from dl2_scheduler.cluster.snapshot import Allocation, Grant, JobState, Snapshot
from dl2_scheduler.commands.cluster.serving import serve
from dl2_scheduler.commands.cluster.serving.driving import Driving
from dl2_scheduler.commands.cluster.serving.serve_options import ThisMachine
from dl2_scheduler.live.history import HISTORY_FILE, History
from tests.dl2_scheduler.clusters import job, nodes


def first_slot(folder, monkeypatch):
    """Number of the first slot that is decided there."""
    seen = []

    @contextmanager
    def driven(cluster, *_):
        yield SimpleNamespace(policy="drf", run=lambda: seen.append(cluster.snapshot().slot))

    monkeypatch.setattr(serve, "driven", driven)
    serve._serve_local(ThisMachine("1x1", IsolationMode.NONE), 20.0, Driving("drf"), folder, None)
    return seen[0]


def test_slots_are_numbered_on_where_records_of_jobs_were_deleted(tmp_path: Path, monkeypatch):
    folder = tmp_path / "dl2"
    assert first_slot(folder, monkeypatch) == 0
    (folder / "jobs.sqlite").unlink()  # as a message says, where they were emptied
    with closing(History(folder / HISTORY_FILE)) as history:
        now = Snapshot(7, 20.0, nodes({"cpu": 4.0}), (JobState(job("a")),))
        history.decided(1e9, "drf", now, Allocation({"a": Grant(1, 1)}))
        assert first_slot(folder, monkeypatch) == 7, "it was cut short"
        history.happened(SlotOutcome(7, [JobOutcome("a", 1, 1, 1.0, None)], ()))
        assert first_slot(folder, monkeypatch) == 8
