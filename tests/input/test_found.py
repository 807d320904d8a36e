"""What the findings page lists: each is refused, with its place and how to mend it, at once."""

import json
import sqlite3
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from coordinator.ctl.cli import app as elasticctl
from dl2_scheduler.cli import app as dl2
from dl2_scheduler.cluster.document.job_document import read_document
from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.live.history import History
from dl2_scheduler.sim.arrivals import Pattern, generate
from dl2_scheduler.sim.trace import write_trace
from elastic_ps.launch.cli import app as elasticrun

SECONDS = 10.0
JOB = {"id": 1, "arrival": 0, "model": "dssm", "epochs": 1, "samples_per_epoch": 10, "worker": {"cpu": 1}}
JOB |= {"server": {"cpu": 1}}
HEAD = "model,servers,workers,samples_per_second\n"
PAI_JOBS = "a,1,u,Terminated,1,9\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    write_trace(Path("trace.jsonl"), generate(Pattern.UNIFORM, 2, 1, {"dssm": 1}))


def refused(program: Any, words: list[str], sentence: str) -> None:
    began = time.process_time()  # of this process alone: others may keep the machine busy
    result = CliRunner().invoke(program, words)
    assert time.process_time() - began < SECONDS
    assert (result.exit_code, sentence in result.output) == (2, True), (result.output, result.exception)
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("trace generate -o a --mix resnet-50=1e308,dssm=1e308", "weight 1e+308 of resnet-50: give a number from 0 on"),
        ("trace generate -o a --jobs 1000000000", "1000000000 jobs: give 1 to 100,000"),
        ("trace generate -o a --jobs 100000 --rate 0.001", "come in 100000000 slots: give fewer"),
        ("trace generate -o a --slot nan", "'--slot': nan: give a number"),
        ("simulate --policy drf --trace trace.jsonl --slot 1e-9", "a simulation has at most 100,000"),
        ("evaluate --policies drf --traces trace.jsonl --slot 1e-9", "a simulation has at most 100,000"),
        ("simulate --policy drf --trace /dev/zero", "dl2: /dev/zero: not a file of data"),
        ("simulate --policy drf --trace trace.jsonl --speeds /dev/zero", "dl2: /dev/zero: not a file of data"),
        ("submit /dev/zero", "cannot read /dev/zero"),
        ("learn --from . --minutes nan", "'--minutes'"),
        ("bootstrap --out b --places 1000000", "--places"),
        ("serve --slots 1x1 --folder cluster --isolation none --learn --policy drf", "--learn: drf is no network"),
        ("serve --slots 1x1 --folder cluster --share-with shared", "--share-with shares what is learnt: give --learn"),
        ("serve --slots 1x1 --folder cluster --learn --share-with trace.jsonl", "give a folder that can be written"),
    ],
)
def test_lines(line: str, sentence: str) -> None:
    refused(dl2, line.split(), sentence)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"model": "\ud800"}, "trace.jsonl:1: model is"),
        ({"epochs": 1e300}, "trace.jsonl:1: epochs is 1e+300: give a number above 0, at most 1e+09"),
        ({"samples_per_epoch": 1e300}, "trace.jsonl:1: samples_per_epoch is 1e+300"),
        ({"arrival": 1e300}, "trace.jsonl:1: arrival is 1e+300"),
        ({"epochs": 1e9, "samples_per_epoch": 1e15}, "trace.jsonl:1: job 1: it ends after"),
        ({"arrival": 1e11}, "trace.jsonl:1: job 1: it ends after"),
        ({"worker": {"cpu": 1e300}}, "worker: the amount of cpu is 1e+300"),
        ({"max_workers": 10**30}, "max_workers is 1000"),
    ],
)
def test_traces(change: dict[str, Any], sentence: str) -> None:
    Path("trace.jsonl").write_text(json.dumps({**JOB, **change}) + "\n")
    refused(dl2, ["simulate", "--policy", "drf", "--trace", "trace.jsonl"], sentence)


def test_a_model_that_no_terminal_can_show() -> None:
    Path("trace.jsonl").write_text(json.dumps({**JOB, "model": "\ud800"}) + "\n")
    refused(dl2, ["trace", "show", "trace.jsonl"], "trace.jsonl:1: model is")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (HEAD + "dssm,1,1," + '"' + "1" * 200_000 + '"\n', "speeds:2: field larger than field limit"),
        ("(" + "-" * 200_000 + "\n", "speeds:1: not a row"),
        ("(" + "-" * 9_000 + "\n", "speeds:1: not a row"),
        ("('dssm', 's', 1, 1, 1e400, [1.0])\n", "speeds:1: not a row"),
        ("('dssm', 's', 1, 1, 1, [" + "9" * 400 + "])\n", "speeds:1: not a row"),
        (HEAD + "dssm,1,1,7\n", "speeds: 1 rows of dssm: give 2 to 5,000"),
        (HEAD + "dssm,1,1,1e308\ndssm,2,2,1e308\n", "speeds:2: samples a second is 1e+308"),
        (HEAD + "dssm,1,1," + "9" * 400 + "\n", "speeds:2: samples a second is inf"),
        (HEAD + f"dssm,{'9' * 5000},1,1\n", "speeds:2: "),
    ],
)
def test_speeds(text: str, sentence: str) -> None:
    Path("speeds").write_text(text)
    refused(dl2, ["simulate", "--policy", "drf", "--trace", "trace.jsonl", "--speeds", "speeds"], sentence)


def test_instances_without_end() -> None:
    Path("jobs.csv").write_text(PAI_JOBS)
    Path("tasks.csv").write_text("a,worker,1e308,Terminated,1,9,100,1,100,V100\n")
    refused(
        dl2,
        ["trace", "convert", "--from", "pai", "jobs.csv", "tasks.csv", "-o", "a"],
        "inst_num is 1e308: give a number from 0",
    )


@pytest.mark.slow
def test_a_kubeconfig_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for content in (b"\x00\xff\xfe", b"a: [", b"[" * 10_000, b"5", b"contexts: 5\ncurrent-context: a", b"\x80"):
        Path("config").write_bytes(content)
        monkeypatch.setenv("KUBECONFIG", "config")
        refused(dl2, ["jobs", "--kube"], "dl2: no Kubernetes cluster: ")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--lease 1e14 train.py", "--lease 1e+14: must be more than 0 seconds, and at most 2,592,000"),
        ("--lease 1e300 train.py", "'--lease': 1e+300: give"),
        ("--checkpoint file:///proc/x train.py", "elasticrun: --checkpoint file:///proc/x: "),
        ("--role server --coordinator a:1 --token-file /dev/zero", "not a file of data"),
        ("--role server --coordinator a:1 --token-file ", "an empty path"),
    ],
)
def test_elasticrun(words: str, sentence: str) -> None:
    Path("train.py").touch()
    refused(elasticrun, words.split(" "), sentence)


def test_elasticctl() -> None:
    result = CliRunner().invoke(elasticctl, ["status", "--coordinator", "127.0.0.1:1", "--token-file", "/dev/zero"])
    assert result.exit_code == 2
    assert "cannot read the job token from /dev/zero: not a file of data" in result.output


DOCUMENT = """
apiVersion: dl2.scheduler/v1alpha1
kind: ElasticJob
metadata: {name: a}
spec:
  modelType: a
  epochs: 1
  %s
  workers: {template: {spec: {containers: [{command: [python, a.py], args: [%s]}]}}}
"""


@pytest.mark.parametrize(
    ("field", "argument", "sentence"),
    [
        ("retryLimit: 1" + "0" * 30, "b", "spec.retryLimit is "),
        ("ttlSecondsAfterFinished: 1" + "0" * 30, "b", "spec.ttlSecondsAfterFinished is "),
        ("suspend: false", "x" * 300_000, "longer than 131,071 bytes"),
    ],
)
def test_documents(field: str, argument: str, sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        read_document(DOCUMENT % (field, argument))


def histories() -> Iterator[tuple[str, bytes]]:
    """Files that are no history, or whose slots cannot be read."""
    Path("whole").mkdir()
    History(Path("whole/decisions.sqlite")).close()
    database = sqlite3.connect("whole/decisions.sqlite")
    rows = [(1, "x", "p", b"\x00", None), (2, 1.0, "p", zlib.compress(b"[" * 10**6), None), (3, 1.0, "p", "text", None)]
    bomb = zlib.compress(bytes(200 << 20), 9)
    database.executemany("INSERT INTO slots VALUES (?, ?, ?, ?, ?)", [*rows, (4, 1.0, "p", bomb, None)])
    database.commit()
    database.execute("PRAGMA journal_mode=DELETE")
    database.close()
    whole = Path("whole/decisions.sqlite").read_bytes()
    yield "slots of rubbish", whole
    yield "rubbish", b"x" * 5000
    yield "nothing", b""
    yield "half", whole[: len(whole) // 2]
    yield "no pages", whole[:4096] + bytes(len(whole) - 4096)


@pytest.mark.slow
def test_histories() -> None:
    for name, content in histories():
        Path("cluster").mkdir(exist_ok=True)
        for old in Path("cluster").iterdir():
            old.unlink()
        Path("cluster/decisions.sqlite").write_bytes(content)
        for line in ("fit --out a.csv --folder cluster", "simulate --from-history cluster"):
            result = CliRunner().invoke(dl2, line.split())
            assert result.exit_code == 2, (name, line, result.output, result.exception)
            assert result.output.startswith("dl2: "), (name, line, result.output)
