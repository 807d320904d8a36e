"""Jobs of mode all-reduce on this machine: they begin, are scaled and end with workers alone."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from dl2_scheduler.backends.local import decide
from dl2_scheduler.backends.local.decide import LeaveJob, ScaleJob, StartJob, SuspendJob
from dl2_scheduler.backends.local.job_records import JobRecord, JobRecords
from dl2_scheduler.backends.local.launchers import processes
from dl2_scheduler.backends.local.launchers.elasticrun import ElasticrunRuntime
from dl2_scheduler.backends.local.runtime import JobReport, LaunchOrder, TaskShape
from dl2_scheduler.backends.local.tasks.isolation import NoIsolation
from dl2_scheduler.backends.local.tasks.task_files import TaskFiles
from dl2_scheduler.backends.local.views import outcome_of, speed_of, state_of
from dl2_scheduler.cluster.desk import LiveJobPhase
from dl2_scheduler.cluster.document.job_document import read_document
from dl2_scheduler.cluster.errors import BadInput, ClusterRefused
from dl2_scheduler.cluster.snapshot import Grant
from elastic_ps.core.job_mode import JobMode
from tests.dl2_scheduler.backends.local.test_local_placement import places, placing
from tests.dl2_scheduler.backends.local.test_local_placement import slot as placed_slot
from tests.dl2_scheduler.local_cases import HERE, only, phases, slot
from tests.dl2_scheduler.played_cluster import document


def serverless(**spec):
    whole = yaml.safe_load(document(epochs=400))
    del whole["spec"]["servers"]
    whole["spec"] |= {"mode": "all-reduce", **spec}
    return yaml.safe_dump(whole)


RECORD = JobRecord(1, read_document(serverless()), Path(), 0.0, wanted_workers=1)
REPORT = JobReport(True, "", 2, 0, 2, 0, True, 3.5, 100.0, 50.0)


def test_from_one_worker_to_two_and_back(serve, runtime):
    cluster = serve()
    cluster.desk.submit(serverless(), HERE)
    (state,) = cluster.snapshot().jobs
    assert (state.job.max_workers, state.job.max_servers, state.job.min_servers, state.job.server) == (4, 0, 0, {})
    outcomes = [only(slot(cluster, digits=counts)) for counts in ((1, 0), (2, 0), (1, 0))]
    assert [(each.workers, each.servers, each.epochs) for each in outcomes] == [(1, 0, 2), (2, 0, 4), (1, 0, 2)]
    assert runtime.calls == [("start", "digits", 1, 0), ("scale", "digits", 2, 0), ("scale", "digits", 1, 0)]
    order = runtime.jobs["digits"].order
    assert (order.mode, order.shape) == (JobMode.ALL_REDUCE, TaskShape("digits", 1, {"worker": 1.0}, {"worker": {}}))
    after = cluster.snapshot()
    assert [(told.workers, told.servers, told.samples_per_second) for told in after.reports] == [(1, 0, 1.0)]
    assert after.jobs[0].slots_run == 3
    told = cluster.desk.jobs()[0]
    assert (told.workers, told.servers, told.max_servers) == (1, 0, 0)


def test_one_that_cannot_be_saved_goes_on_and_says_why(serve, runtime):
    cluster = serve()
    cluster.desk.submit(serverless(), HERE)
    slot(cluster, digits=(2, 0))

    def refuse(name, done):
        done("it writes no checkpoints")

    runtime.save = refuse
    outcome = only(slot(cluster))
    assert (outcome.workers, outcome.epochs) == (2, pytest.approx(4.0))
    assert outcome.note == "it could not be saved, so it is not suspended: it writes no checkpoints"


@pytest.mark.parametrize(("policy", "nodes"), [("best-fit", 1), ("load-balance", 2)])
def test_a_placement_policy_places_its_workers(serve, policy, nodes):
    cluster = serve(placing=placing(policy))
    cluster.desk.submit(serverless(), HERE)
    settled, outcome = placed_slot(cluster, digits=(2, 0))
    assert (settled.of("digits").workers, only(outcome).workers) == (2, 2)
    assert (len(set(places(cluster, "digits")[0])), places(cluster, "digits")[1]) == (nodes, ())
    for counts in ((4, 0), (1, 0)):
        assert (only(placed_slot(cluster, digits=counts)[1]).workers, len(places(cluster, "digits")[0])) == (
            counts[0],
        ) * 2


@pytest.mark.parametrize(
    ("phase", "report", "grant", "action"),
    [
        (LiveJobPhase.WAITING, None, (2, 0), StartJob(2, 0)),
        (LiveJobPhase.WAITING, None, (0, 0), LeaveJob()),
        (LiveJobPhase.RUNNING, REPORT, (2, 0), LeaveJob()),
        (LiveJobPhase.RUNNING, REPORT, (3, 0), ScaleJob(3, 0)),
        (LiveJobPhase.RUNNING, REPORT, (0, 0), SuspendJob(save=True)),
    ],
)
def test_what_is_done(phase, report, grant, action):
    record = JobRecord(1, RECORD.document, Path(), 0.0, phase)
    assert decide.difference(record, report, Grant(*grant), "") == action


def test_speeds_and_outcomes_of_workers_alone():
    now = JobRecord(1, RECORD.document, Path(), 0.0, LiveJobPhase.RUNNING, workers=2, samples_per_second=9.0)
    assert (speed_of(now).servers, speed_of(now).workers) == (0, 2)
    failed = JobRecord(1, RECORD.document, Path(), 0.0, LiveJobPhase.FAILED, ended=5.0)
    assert outcome_of(now, failed, Grant(2, 0), "", 0.0).workers == 2  # it had trained
    assert outcome_of(RECORD, failed, Grant(2, 0), "", 0.0).workers == 0
    assert not state_of(now, 0.0).job.has_servers


def test_its_owner_scales_workers_and_gets_no_servers(serve, runtime):
    cluster = serve()
    cluster.desk.submit(serverless(scaling="Manual"), HERE)
    slot(cluster)
    assert runtime.calls == [("start", "digits", 1, 0)]
    with pytest.raises(ClusterRefused, match="digits has no servers, and gets none: its mode is all-reduce"):
        cluster.desk.scale("digits", 0, 1)
    assert cluster.desk.scale("digits", 3, 0) == Grant(3, 0)
    slot(cluster)
    assert runtime.calls[-1] == ("scale", "digits", 3, 0)
    with pytest.raises(ClusterRefused, match="5 workers for digits: its document allows 1 to 4"):
        cluster.desk.scale("digits", 5, 0)


def test_what_cannot_run_here(serve):
    workers = yaml.safe_load(serverless())["spec"]["workers"]
    with pytest.raises(BadInput, match="digits: 20 workers, its first, do not fit the nodes"):
        serve().desk.submit(serverless(workers={**workers, "min": 20, "max": 20}), HERE)


def test_records_outlive_a_restart(tmp_path):
    records = JobRecords(tmp_path / "jobs", 0.0)
    records.add(read_document(serverless()), HERE, 0.0)
    records.close()
    (record,) = JobRecords(tmp_path / "jobs", 0.0).all()
    assert record.document == read_document(serverless())
    assert record.document.spec.servers.max == 0


def test_suspended_with_a_checkpoint_and_restored_from_it(serve, runtime):
    cluster = serve()
    cluster.desk.submit(serverless(checkpoint={"url": "saved", "interval": "5s"}), HERE)
    slot(cluster, digits=(2, 0))
    order = runtime.jobs["digits"].order
    assert (order.checkpoint_url, order.checkpoint_interval) == ("there/saved", 5.0)
    assert only(slot(cluster)).workers == 0
    assert runtime.calls[-2:] == [("save", "digits"), ("stop", "digits")]
    assert phases(cluster) == {"digits": LiveJobPhase.WAITING}
    slot(cluster, digits=(1, 0))
    assert runtime.calls[-1] == ("start", "digits", 1, 0)
    assert cluster.desk.jobs()[0].epochs_done == pytest.approx(6.0)


def test_storage_that_nobody_can_write_to_is_refused(serve):
    with pytest.raises(BadInput, match=r"digits: spec\.checkpoint\.url: "):
        serve().desk.submit(serverless(checkpoint={"url": "nowhere://x"}), HERE)


def test_its_launcher_is_told_the_mode_and_its_checkpoints_and_nothing_of_servers(tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(processes, "start", lambda command, *further: started.append(command) or SimpleNamespace(pid=7))
    runtime = ElasticrunRuntime(tmp_path, lambda: None, TaskFiles(tmp_path / "tasks", NoIsolation(), 2.0, 16.0))
    shape = TaskShape("digits", 3, {"worker": 1.0}, {"worker": {}})
    order = LaunchOrder(shape, 0.0, 2, ("python", "x.py"), tmp_path, 2, 0, "", 5.0, 3, 0, JobMode.ALL_REDUCE)
    checkpoint = tmp_path / "checkpoints/digits-3/version-000007"

    def options(order):
        runtime.start(order, lambda process: None)
        words = started[-1][started[-1].index("elastic_ps.launch") + 1 :]
        return dict(zip(words[::2], words[1::2], strict=False))

    given = options(order)
    assert (given["--mode"], given["--workers"]) == ("all-reduce", "2")
    assert (given["--checkpoint"], given["--checkpoint-interval"]) == (str(checkpoint.parent), "5.0")
    assert given.keys() & {"--servers", "--replicas", "--restore", "--wrap-server"} == set()
    checkpoint.mkdir(parents=True)
    (checkpoint / "manifest.json").touch()
    assert options(order)["--restore"] == str(checkpoint.parent)
    assert "--restore" not in options(replace(order, run=1))


def test_asked_to_scale_it_names_no_servers(tmp_path, monkeypatch):
    asked = []

    class Client:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

        def scale(self, workers, servers, cause):
            asked.append((workers, servers))

    runtime = ElasticrunRuntime(tmp_path, lambda: None, TaskFiles(tmp_path / "tasks", NoIsolation(), 2.0, 16.0))
    monkeypatch.setattr(runtime, "_client", lambda name: Client())
    runtime.scale("digits", 2, 0)
    runtime.scale("digits", 2, 1)
    assert asked == [(2, None), (2, 1)]
