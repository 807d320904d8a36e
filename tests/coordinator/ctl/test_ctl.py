"""elasticctl: what it prints, what it asks for, how it ends."""

import io
import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from rich.console import Console

from coordinator.ctl.watching import watch_job
from protos import elastic_pb2 as pb
from tests.coordinator.ctl.ctl_fake import committed, plan, running_status

Ctl = Callable[..., Any]


@pytest.fixture(autouse=True)
def _job(digits: Path) -> None:
    """Every test has the job that the fake coordinator runs."""


def test_status_shows_everything(ctl: Ctl, fake: Any) -> None:
    fake.statuses[0].plan.CopyFrom(plan(5, "SYNCING", missing=["1 worker"]))
    fake.statuses[0].queued = "scale to 4 workers"
    fake.statuses[0].waiting.append("w1 has been silent for 6 s: w1 is expelled in 9 s")
    result = ctl("status", "digits")
    assert result.exit_code == 0
    for words in (
        "elastic, 1,500 samples, global batch 64",
        "epoch 4, step 8, version 120",
        "consistency    sync",
        "transport      shm  ",
        "5,267 samples/s",
        "1.2 MB in 8 blocks",
        "3 workers, 2 servers",
        "plan 5  SYNCING  +w3 -s0  (operator)  without, as they did not come: 1 worker",
        "queued  scale to 4 workers",
        "waiting  w1 has been silent for 6 s: w1 is expelled in 9 s",
        "127.0.0.1:9001",
    ):
        assert words in result.stdout
    lines = result.stdout.splitlines()
    order = [line.split()[0] for line in lines if line[:2] in ("w0", "w2", "w3", "s0", "s1")]
    assert order == ["w0", "w2", "w3", "s0", "s1"]  # by rank, those without one last
    assert next(line for line in lines if line.startswith("s0")).split()[4:8] == ["700", "kB", "█████", "117%"]


def test_a_transport_that_was_second_choice_is_named_with_the_reason(ctl: Ctl, fake: Any) -> None:
    for node, server in ((1, "s1"), (2, "s0"), (2, "s1")):
        fake.statuses[0].nodes[node].transports[server] = "tcp: not on this host"
    shown = "shm on 1 connection, tcp on 3 connections (w2 to s1: not on this host; and 2 more)"
    assert f"transport      {shown}" in ctl("status").stdout.replace("\n" + " " * 15, " ")
    assert json.loads(ctl("status", "--json").stdout)["nodes"][1]["transports"]["s1"] == "tcp: not on this host"


def test_status_says_how_much_is_protected_and_why_not_all(ctl: Ctl, fake: Any) -> None:
    why = "blocks of s1 have no follower; plan 5 was given up (w0 has been silent)"
    found = pb.Protection(blocks=7, bytes=1_199_999, cause="GivenUp", why=why, retry_seconds=12.4)
    fake.statuses[0].protection.CopyFrom(found)
    shown = ctl("status").stdout.replace("\n" + " " * 15, " ")
    assert f"protected      99% (7 of 8 blocks): {why}; tried again in 12 s" in shown
    assert json.loads(ctl("status", "--json").stdout)["protection"]["cause"] == "GivenUp"
    fake.statuses[0].protection.CopyFrom(pb.Protection(blocks=8, bytes=1_200_000))
    assert "protected      100% (8 of 8 blocks)" in map(str.rstrip, ctl("status").stdout.splitlines())


def test_status_of_a_job_without_replicas_does_not_speak_of_protection(ctl: Ctl) -> None:
    assert "protected" not in ctl("status").stdout
    assert json.loads(ctl("status", "--json").stdout)["protection"] is None


def test_status_of_a_job_without_parameters_says_why_nothing_is_protected(ctl: Ctl, fake: Any) -> None:
    fake.statuses[0].blocks = fake.statuses[0].bytes = 0
    fake.statuses[0].protection.why = "the job is starting"
    assert "protected      the job is starting" in map(str.rstrip, ctl("status").stdout.splitlines())


def test_status_json_is_whole(ctl: Ctl) -> None:
    value = json.loads(ctl("status", "--json").stdout)
    assert value["bytes"] == 1_200_000
    assert value["plan"] is None
    assert value["nodes"][0]["member"]["role"] == "SERVER"
    assert value["nodes"][1]["metrics"] == {"loss": 0.25}
    assert value["queued"] == ""


def test_metrics_that_are_no_finite_numbers_are_shown_and_json_stays_json(ctl: Ctl, fake: Any) -> None:
    metrics = {"loss": math.nan, "norm": math.inf, "margin": -math.inf}
    fake.statuses[0].nodes[1].metrics.update(metrics)

    def refused(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    value = json.loads(ctl("status", "--json").stdout, parse_constant=refused)
    assert value["nodes"][1]["metrics"] == {"loss": "NaN", "norm": "Infinity", "margin": "-Infinity"}
    shown = next(line for line in ctl("status").stdout.splitlines() if line.startswith("w2"))
    assert {"nan", "inf", "-inf"} <= set(shown.split())


def test_static_data_is_named(ctl: Ctl, fake: Any) -> None:
    fake.statuses[0].data.elastic = False
    assert "static: the script draws its own batches" in ctl("status").stdout


def test_before_a_script_has_declared_the_data_is_not_known(ctl: Ctl, fake: Any) -> None:
    fake.statuses[0].data.Clear()
    fake.statuses[0].blocks = 0
    out = ctl("status").stdout
    assert "data           not known yet" in out
    assert "consistency    -" in out
    assert "static" not in out


@pytest.mark.parametrize(("staleness", "shown"), [(0, "async"), (3, "ssp (3)")])
def test_a_job_that_is_not_sync_says_so(ctl: Ctl, fake: Any, staleness: int, shown: str) -> None:
    fake.statuses[0].data.consistency = "ssp" if staleness else "async"
    fake.statuses[0].data.staleness = staleness
    out = ctl("status").stdout
    assert f"consistency    {shown}" in out
    assert "epoch 4, 8 batches done, version 120" in out
    assert "1,500 samples, each worker's batch 64" in out
    saved = ctl("checkpoint", "--url", "memory://x").stdout
    assert "saved checkpoint 120" in saved
    assert "consistent per block only" in saved


def test_plans(ctl: Ctl, fake: Any) -> None:
    fake.histories = [[committed(1), plan(2, "CANCELLED", reason="w3 died before it was ready")]]
    out = ctl("plans", "digits").stdout
    assert "812" in out
    assert "95.2" in out
    assert "400 kB" in out
    assert "plan 2: w3 died before it was ready" in out
    value = json.loads(ctl("plans", "--json").stdout)
    assert value["plans"][0]["steps_ms"] == [812.4, 1.5, 95.25, 3.125]
    assert value["plans"][0]["suspension_ms"] == {"w0": 0.8, "w2": 1.25}
    assert value["plans"][0]["mode"] == "LIVE"


def test_no_plans(ctl: Ctl) -> None:
    assert ctl("plans").stdout == "no plans yet\n"


def test_a_checkpoints_relative_folder_is_where_the_operator_is(
    ctl: Ctl, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Coordinator and servers have the working directory of who started them."""
    monkeypatch.chdir(tmp_path)
    assert ctl("checkpoint", "--url", "backup/x", "--json").stdout.count(f'"{tmp_path}/backup/x') == 1
    assert ctl("checkpoint", "--url", "/backup", "--json").stdout.count('"/backup') == 1


def test_cancel_checkpoint_stop(ctl: Ctl, fake: Any) -> None:
    assert ctl("cancel").stderr == "elasticctl: no plan is under way\n"
    assert "Cancel" not in fake.requests
    fake.statuses[0].plan.id = 7
    assert ctl("cancel").stdout == "plan 7 cancelled; the job goes on with 2 workers and 1 server\n"
    assert ctl("cancel", "--plan", "6").exit_code == 0
    assert [request.plan for request in fake.requests["Cancel"]] == [7, 6]
    assert "saved version 120, 2.4 MB, to memory://x" in ctl("checkpoint", "--url", "memory://x").stdout
    assert ctl("stop", "digits", "--now").stdout == "digits is stopping\n"
    assert fake.requests["Stop"][0].now
    assert json.loads(ctl("cancel", "--json").stdout) == {"plan": 7, "queued": "", "workers": 2, "servers": 1}
    fake.cancel_reply.servers = 0
    assert ctl("cancel").stdout == "plan 7 cancelled; the job goes on with 2 workers\n"
    fake.cancel_reply.queued = "scale to 4 workers (operator)"
    assert "plan 7 cancelled; what was queued is next: scale to 4 workers (operator)" in ctl("cancel").stdout
    assert json.loads(ctl("checkpoint", "--json").stdout)["bytes"] == 2_400_000
    assert json.loads(ctl("stop", "--json").stdout) == {"job": "digits", "stopping": True}


def test_ledger(ctl: Ctl, fake: Any) -> None:
    fake.ledger_entries = [
        pb.LedgerEntry(
            server="s0",
            term=1,
            number=2,
            version=9,
            runs=[0, 3, 7, 1],
            epoch=1,
            step=2,
            slices=[pb.Slice(worker="w0", low=0, high=32), pb.Slice(worker="w1", low=32, high=64)],
            voided=True,
        )
    ] * 2
    line = "s0  1.2  version 9  epoch 1 step 2.0  blocks 0-2,7  w0[0,32) w1[32,64)  voided"
    assert ctl("ledger").stdout.splitlines() == [line, line]
    first, _ = ctl("ledger", "--json").stdout.splitlines()
    assert json.loads(first)["slices"][1] == {"worker": "w1", "low": 32, "high": 64}


@pytest.mark.slow
def test_a_reader_that_has_seen_enough_ends_the_ledger_quietly(fake: Any) -> None:
    fake.ledger_entries = [pb.LedgerEntry(server="s0", version=number) for number in range(20_000)]
    command = [sys.executable, "-c", "from coordinator.ctl.cli import main; main()", "ledger", "digits"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("s0")
        process.stdout.close()
        assert process.stderr.read() == ""


def ending(phase: str) -> list[pb.StatusReply]:
    later, last = running_status(), running_status()
    later.version, later.step = 121, 9
    later.plan.CopyFrom(plan(7, "SYNCING"))
    last.phase = phase
    return [running_status(), running_status(), later, last]


def test_watch_prints_a_line_when_the_job_has_moved(ctl: Ctl, fake: Any) -> None:
    fake.statuses = ending("finished")
    result = ctl("watch", "--interval", "0.1")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("running  epoch 4 step 8 version 120  accuracy 0.9  loss 0.24  2 workers, 2 servers")
    assert lines[1].endswith("plan 7  SYNCING  +w3 -s0  (operator)")
    assert lines[2].startswith("finished")


def test_watch_prints_lines_on_a_terminal_that_cannot_draw_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """It showed nothing before the job's end."""
    monkeypatch.setenv("TERM", "dumb")
    said = iter(ending("finished"))
    client: Any = SimpleNamespace(status=lambda: next(said), plans=lambda latest: [])
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    assert watch_job(client, console, 0.01, as_json=False)
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().startswith("running  epoch 4 step 8 version 120")


def test_watch_refuses_a_pause_that_no_system_can_make(ctl: Ctl) -> None:
    result = ctl("watch", "--interval", "1e12")
    assert result.exit_code == 2
    assert "'--interval': must be at most 86400" in result.output


def test_watch_says_how_much_is_protected(ctl: Ctl, fake: Any) -> None:
    fake.statuses = ending("finished")
    fake.statuses[0].protection.bytes = fake.statuses[1].protection.bytes = 600_000
    lines = ctl("watch", "--interval", "0.1").stdout.splitlines()
    assert lines[0].endswith("samples/s  protected 50%")
    assert "protected" not in lines[1]


def test_watch_json_and_a_failed_job(ctl: Ctl, fake: Any) -> None:
    fake.statuses = ending("failed")
    result = ctl("watch", "--interval", "0.1", "--json")
    assert result.exit_code == 1
    assert [json.loads(line)["version"] for line in result.stdout.splitlines()] == [120, 120, 121, 120]


@pytest.mark.parametrize(("status", "how"), [(0, "stopped"), (1, "failed"), (137, "stopped")])
@pytest.mark.parametrize("as_json", [False, True])
def test_watch_of_a_job_whose_coordinator_went_with_it(
    ctl: Ctl, fake: Any, digits: Path, status: int, how: str, as_json: bool
) -> None:
    """Between two looks the job ended, and its coordinator with it."""
    record = json.loads((digits / "job.json").read_text())
    fake.refusals["Status"] = (grpc.StatusCode.UNAVAILABLE, "gone")
    fake.gone = lambda: (digits / "job.json").write_text(json.dumps({**record, "status": status, "reason": "the end"}))
    result = ctl("watch", "--interval", "0.1", *(["--json"] if as_json else []))
    assert result.exit_code == bool(status)
    last = result.stdout.splitlines()[-1]
    if as_json:
        assert json.loads(last) == {"ended": how, "exit_status": status, "reason": "the end"}
    else:
        assert last == f"job digits is over: {how} with status {status}, the end"


def test_a_checkpoint_into_an_empty_url_is_refused(ctl: Ctl, fake: Any) -> None:
    result = ctl("checkpoint", "--url", "")
    assert result.exit_code == 2
    assert "a variable of the shell may not be set" in " ".join(result.output.replace("│", " ").split())
    assert "Checkpoint" not in fake.requests


def test_texts_are_never_markup(ctl: Ctl, fake: Any) -> None:
    fake.histories = [[plan(1, "COMMITTED", cause="scheduler: [red]job[/red] :smile:")]]
    assert "[red]job[/red] :smile:" in ctl("plans").stdout
