"""Commands about jobs of which there is nothing to tell yet, or nothing any more."""

import time

import pytest
from typer.testing import CliRunner

from dl2_scheduler.cli import app
from dl2_scheduler.commands.cluster import jobs
from dl2_scheduler.commands.cluster.serving.driving import Driving, driven
from dl2_scheduler.live.history import HISTORY_FILE, History
from protos import cluster_pb2 as pb
from tests.dl2_scheduler.played_cluster import document


def dl2(*words):
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


@pytest.fixture
def loop(tmp_path, monkeypatch, serve):
    """Of a cluster that commands find."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = tmp_path / "dl2"
    folder.mkdir()
    history, cluster = History(folder / HISTORY_FILE), serve()
    with driven(cluster, cluster.desk, history, folder, Driving("drf", guard=None)) as found:
        found.desk = cluster.desk
        yield found
    history.close()


def test_a_job_that_no_slot_has_decided_about(loop, tmp_path):
    loop.desk.submit(document("a", epochs=4), tmp_path)
    assert dl2("why", "a") == "nothing has been decided about a yet: dl2 status a says how it is"


def test_a_cluster_whose_jobs_have_all_ended(loop, tmp_path, runtime):
    runtime.epochs = 4.0
    loop.desk.submit(document("a", epochs=4), tmp_path)
    loop.slot()
    assert dl2("what-if", "--policy", "fifo").startswith("there is no job to forecast: those that have ended")
    assert "all that it can use; finished: finished" in dl2("why", "a")


def test_a_job_that_was_submitted_before_the_clock_was_set_back_has_no_age_below_0():
    assert jobs._age(pb.JobStatus(submitted=time.time() + 3600)) == "0m00s"
