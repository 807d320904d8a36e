"""Converters of public traces, on excerpts made by hand after their published formats."""

import json
from pathlib import Path
from typing import Any

import pytest

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.sim.catalogue import CATALOGUE
from dl2_scheduler.sim.convert import pollux
from dl2_scheduler.sim.convert.filling import FILLING_RULES, TracedJob, fill
from dl2_scheduler.sim.convert.sources import TraceSource, convert
from dl2_scheduler.sim.shipped import shipped_speeds
from dl2_scheduler.sim.trace import read_trace, write_trace
from tests.paths import ROOT

DOCS = ROOT / "docs" / "reference" / "traces.md"


def attempt(start: str | None, end: str | None, gpus: int) -> dict[str, Any]:
    return {"start_time": start, "end_time": end, "detail": [{"ip": "m1", "gpus": [f"gpu{n}" for n in range(gpus)]}]}


def philly_job(name: str, submitted: str | None, *attempts: dict[str, Any]) -> dict[str, Any]:
    return {
        "status": "Pass",
        "vc": "aaaaaa",
        "jobid": name,
        "attempts": list(attempts),
        "submitted_time": submitted,
        "user": "bbbbbb",
    }


HOUR = ("2017-10-07 01:00:00", "2017-10-07 02:00:00")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "cluster_job_log"


def test_philly(log: Path) -> None:
    again = attempt("2017-10-07 03:00:00", "2017-10-07 03:30:00", 8)
    jobs = [
        philly_job("late", "2017-10-07 00:50:30", attempt(*HOUR, 2), again),
        philly_job("early", "2017-10-07 00:50:00", attempt(*HOUR, 1)),
        philly_job("running", "2017-10-07 00:50:00", attempt(HOUR[0], None, 1)),
        philly_job("never", "2017-10-07 00:50:00"),
        philly_job("unknown", "None", attempt(*HOUR, 1)),
        philly_job("bare", "2017-10-07 00:50:00", attempt(*HOUR, 0)),
    ]
    log.write_text(json.dumps(jobs))
    converted = convert(TraceSource.PHILLY, [log])
    first, second = converted.jobs
    assert [(job.id, job.arrival) for job in converted.jobs] == [("early", 0.0), ("late", 30.0)]
    assert converted.left_out == {"no attempt with both times": 2, "no submission": 1, "no GPUs": 1}
    assert (first.worker, first.server) == ({"cpu": 2, "gpu": 1}, {"cpu": 2, "gpu": 0})
    speed = shipped_speeds().of(second.model, 8, 8)  # the last attempt's GPUs, and as many servers
    assert second.epochs * second.samples_per_epoch == pytest.approx(speed * 5400, rel=1e-3)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "not a JSON file"),
        ("[{", "not a JSON file, perhaps torn"),
        ("{}", "not a list of jobs: give Philly's cluster_job_log"),
        ("[7]", "job 1: not as in Philly's cluster_job_log: TypeError"),
        ('[{"jobid": "x"}]', "job 1: not as in Philly's cluster_job_log: KeyError.'submitted_time'"),
        (json.dumps([philly_job("x", "yesterday", attempt(*HOUR, 1))]), "job 1: .*ValueError.*yesterday"),
        (json.dumps([philly_job("x", HOUR[0], attempt(*HOUR, 1))] * 2), "job x again"),
        ("[]", r"no job can be used; left out: \{\}"),
    ],
)
def test_philly_refused(log: Path, text: str | None, reason: str) -> None:
    if text is not None:
        log.write_text(text)
    with pytest.raises(BadInput, match=reason):
        convert(TraceSource.PHILLY, [log])


PAI_JOBS = """\
both,i1,u1,Terminated,1000.0,5000.0
alone,i2,u1,Failed,900.0,4600.0
waiting,i3,u2,Waiting,,
only-ps,i4,u2,Terminated,1000.0,5000.0
cpu,i5,u2,Terminated,1500.0,5100.0
"""
PAI_TASKS = """\
both,ps,2.0,Terminated,1100.0,4700.0,600.0,29.3,,
both,chief,1.0,Terminated,1100.0,4700.0,200.0,29.3,25.0,MISC
both,worker,3.0,Terminated,1150.0,4690.0,400.0,29.3,50.0,MISC
both,evaluator,1.0,Terminated,1000.0,9000.0,400.0,29.3,50.0,MISC
alone,tensorflow,1.0,Failed,1000.0,4600.0,,,100.0,T4
waiting,worker,1.0,Waiting,,,600.0,29.3,50.0,
only-ps,ps,1.0,Terminated,1100.0,4700.0,600.0,29.3,,
cpu,xComputeWorker,30.0,Terminated,1500.0,5100.0,600.0,8.0,,CPU
stray,worker,1.0,Running,1500.0,,600.0,8.0,,
short,worker,1.0,Running,1500.0,,600.0,8.0,,
"""


@pytest.fixture
def tables(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / "pai_job_table.csv", tmp_path / "pai_task_table.csv"]
    paths[0].write_text(PAI_JOBS + "short,i6,u1,Running,1000.0,\n")
    paths[1].write_text(PAI_TASKS)
    return paths


def test_pai(tables: list[Path]) -> None:
    converted = convert(TraceSource.PAI, tables)
    alone, both, cpu = converted.jobs
    assert [(job.id, job.arrival) for job in converted.jobs] == [("alone", 0.0), ("both", 100.0), ("cpu", 600.0)]
    assert converted.left_out == {"no start in the job table": 2, "no workers": 1, "no start and end": 1}
    assert (both.worker, both.server) == ({"cpu": 4.0, "gpu": 0.5}, {"cpu": 6.0, "gpu": 0.0})
    assert (alone.worker, alone.server) == ({"cpu": 0.0, "gpu": 1.0}, CATALOGUE[alone.model].server)
    assert both.epochs * both.samples_per_epoch == pytest.approx(shipped_speeds().of(both.model, 2, 4) * 3600, rel=1e-3)
    assert not CATALOGUE[cpu.model].on_gpus
    assert cpu.epochs * cpu.samples_per_epoch == pytest.approx(shipped_speeds().of(cpu.model, 16, 16) * 3600, rel=1e-3)


def test_pai_tables_in_any_order_and_with_headers(tables: list[Path]) -> None:
    without = convert(TraceSource.PAI, tables)
    tables[0].write_text("job_name,inst_id,user,status,start_time,end_time\n" + tables[0].read_text())
    tables[1].write_text(
        "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n" + PAI_TASKS
    )
    assert convert(TraceSource.PAI, tables[::-1]) == without


@pytest.mark.parametrize(
    ("number", "text", "reason"),
    [
        (0, "", "empty: give a table of the PAI trace"),
        (0, "a,b\n", "give pai_job_table.csv and pai_task_table.csv"),
        (1, PAI_TASKS + "both,wor", r"pai_task_table.csv:11: 2 cells, perhaps torn"),
        (1, PAI_TASKS.replace("3.0", "many"), r":3: inst_num is many: give a number from 0 to 1e[+]06"),
        (0, "both,i1,u1,Terminated,-5,5\n", r":1: start_time is -5"),
    ],
)
def test_pai_refused(tables: list[Path], number: int, text: str, reason: str) -> None:
    tables[number].write_text(text)
    with pytest.raises(BadInput, match=reason):
        convert(TraceSource.PAI, tables)


def test_pai_needs_both_tables(tables: list[Path]) -> None:
    with pytest.raises(BadInput, match="1 files: give pai_job_table"):
        convert(TraceSource.PAI, tables[:1])
    with pytest.raises(BadInput, match="No such file"):
        convert(TraceSource.PAI, [tables[0], tables[0].with_name("none")])


WORKLOAD = """\
name,time,application,num_replicas,batch_size
cifar10-0,107,cifar10,6,2048
imagenet-1,160.5,imagenet,32,6400
"""


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    path = tmp_path / "workload-1.csv"
    path.write_text(WORKLOAD)
    return path


def test_pollux(workload: Path) -> None:
    small, large = convert(TraceSource.POLLUX, [workload]).jobs
    assert (small.id, small.arrival, small.model) == ("cifar10-0", 0.0, "resnext-110")
    assert (large.id, large.arrival, large.model) == ("imagenet-1", 53.5, "resnet-50")
    assert small.worker == {"cpu": 2, "gpu": 1}
    speeds = shipped_speeds()
    assert small.epochs * 390.0 == pytest.approx(speeds.of("resnext-110", 6, 6) * 300, rel=1e-3)
    assert large.epochs * 115.0 == pytest.approx(speeds.of("resnet-50", 16, 16) * 300 * 3600 / 32, rel=1e-3)


def test_sias_category(workload: Path) -> None:
    plain = convert(TraceSource.POLLUX, [workload])
    workload.write_text("".join(f"{line},{'rigid' if n else 'category'}\n" for n, line in enumerate(WORKLOAD.split())))
    assert convert(TraceSource.POLLUX, [workload]) == plain


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", ":1: no column name, time, application, num_replicas"),
        (WORKLOAD.replace("num_replicas", "gpus"), ":1: no column num_replicas"),
        (WORKLOAD.replace("cifar10,", "alexnet,"), ":2: unknown application alexnet: there are imagenet"),
        (WORKLOAD.replace(",6,", ",0,"), ":2: not a job, perhaps torn"),
        (WORKLOAD.replace(",6,", ",1.5,"), ":2: not a job"),
        (WORKLOAD.replace(",107,", ",,"), ":2: not a job"),
        (WORKLOAD[:-12], ":3: not a job, perhaps torn"),
        (WORKLOAD.replace("2048", "2048,9"), ":2: not a job"),
        (WORKLOAD.replace("107", "soon"), ":2: time is soon"),
        (WORKLOAD + "cifar10-0,9,cifar10,6,2048\n", "job cifar10-0 again"),
        ('name,time\n"', ":1: no column|unexpected end"),
    ],
)
def test_pollux_refused(workload: Path, text: str, reason: str) -> None:
    workload.write_text(text)
    with pytest.raises(BadInput, match=reason):
        convert(TraceSource.POLLUX, [workload])


def test_pollux_wants_one_file(workload: Path) -> None:
    with pytest.raises(BadInput, match="2 files: give one"):
        convert(TraceSource.POLLUX, [workload, workload])
    with pytest.raises(BadInput, match="No such file"):
        convert(TraceSource.POLLUX, [workload.with_name("none")])


def test_the_first_jobs_only(tables: list[Path]) -> None:
    assert [job.id for job in convert(TraceSource.PAI, tables, most=2).jobs] == ["alone", "both"]


def test_what_is_converted_can_be_read_again(workload: Path, tmp_path: Path) -> None:
    jobs = convert(TraceSource.POLLUX, [workload]).jobs
    write_trace(tmp_path / "trace.jsonl", jobs)
    assert read_trace(tmp_path / "trace.jsonl") == jobs


def test_models_are_drawn_by_id_and_kind() -> None:
    jobs = fill([TracedJob(f"job-{number}", 0.0, 60.0, 2, on_gpus=number % 2 == 0) for number in range(200)])
    for on_gpus in (True, False):
        drawn = {job.model for job in jobs if (int(str(job.id)[4:]) % 2 == 0) == on_gpus}
        assert drawn == {name for name, model in CATALOGUE.items() if model.on_gpus == on_gpus}


def test_the_shortest_job_has_work() -> None:
    (job,) = fill([TracedJob("\ud800", 5.0, 1e-9, 1)])
    job.check()
    assert job.epochs > 0


def test_applications_train_models_of_the_catalogue() -> None:
    assert {model for model, _ in pollux.APPLICATIONS.values()} <= set(CATALOGUE)


@pytest.mark.parametrize("source", list(TraceSource))
def test_the_docs_have_the_rules(source: TraceSource, log: Path, tables: list[Path], workload: Path) -> None:
    log.write_text(json.dumps([philly_job("x", HOUR[0], attempt(*HOUR, 1))]))
    paths = {TraceSource.PHILLY: [log], TraceSource.PAI: tables, TraceSource.POLLUX: [workload]}[source]
    text = " ".join(DOCS.read_text().replace("`", "").split())
    rules = convert(source, paths).rules
    assert rules[-len(FILLING_RULES) :] == FILLING_RULES
    assert [rule for rule in rules if rule not in text] == []
