"""Which job a command means: the state folder, or an address and a token."""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elastic_ps.system.process.proc_stat import birth_of, boot_id
from elastic_ps.system.state_folder import jobs_folder

Ctl = Callable[..., Any]
AddJob = Callable[..., Path]


def ended_pid() -> int:
    """A process id that nobody has: its owner has ended and was waited for."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/x")
    assert jobs_folder({}) == Path("/home/x/.local/state/elastic_ps/jobs")
    assert jobs_folder({"XDG_STATE_HOME": "/state"}) == Path("/state/elastic_ps/jobs")


def test_jobs_lists_each_state(ctl: Ctl, add_job: AddJob) -> None:
    gone = {"pid": ended_pid(), "coordinator_pid": ended_pid(), "coordinator": "127.0.0.1:1"}
    add_job("digits", started=1.0)
    add_job("lost-one", started=2.0, **gone)
    own = {"birth": birth_of(os.getpid()), "coordinator_birth": birth_of(os.getpid())}
    add_job("away-one", started=3.0, coordinator="127.0.0.1:1", **own)
    others = {"birth": "boot:7", "coordinator_birth": "boot:8"}  # whose numbers this process has now
    add_job("lost-two", started=3.5, coordinator="127.0.0.1:1", **others)
    add_job("away-two", started=3.6, coordinator="127.0.0.1:1")  # of a release that wrote no births
    add_job("theirs", started=3.7, coordinator="127.0.0.1:1", host="otherhost", **others)
    add_job("rebooted", started=3.8, coordinator="127.0.0.1:1", host=socket.gethostname(), **others)
    add_job("old", started=4.0, ended=5.0, status=0, **gone)
    add_job("halted", started=5.0, ended=6.0, status=0, reason="stopped by the operator", **gone)
    add_job("broken", started=6.0, ended=7.0, status=1, **gone)
    add_job("crashed", started=7.0, ended=8.0, status=255, **gone)
    add_job("given-up", started=8.0, ended=9.0, status=130, **gone)
    lines = ctl("jobs").stdout.splitlines()
    assert [line.split()[:2] for line in lines[2:]] == [
        ["digits", "running"],
        ["lost-one", "lost"],
        ["away-one", "away"],
        ["lost-two", "lost"],
        ["away-two", "away"],
        ["theirs", "elsewhere"],
        ["rebooted", "lost"],
    ]
    assert lines[2].split()[2:8] == ["2", "->", "3", "2", "4", "5,267"]
    listed = json.loads(ctl("jobs", "--all", "--json").stdout)["jobs"]
    ended = [("old", "finished"), ("halted", "stopped"), ("broken", "failed"), ("crashed", "failed")]
    ended += [("given-up", "stopped")]
    assert [(job["name"], job["state"]) for job in listed[7:]] == ended
    assert listed[0]["status"]["version"] == 120
    assert listed[1]["status"] is None


def test_no_jobs(ctl: Ctl, folder: Path) -> None:
    result = ctl("jobs")
    assert result.exit_code == 0
    assert "elasticrun --workers 2 --servers 1 train.py" in result.stdout
    assert json.loads(ctl("jobs", "--json").stdout) == {"jobs": []}


def test_half_written_and_foreign_folders_are_passed_over(ctl: Ctl, folder: Path, add_job: AddJob) -> None:
    add_job("digits")
    for name, text in (("torn", '{"name": "to'), ("list", "[1]"), ("poor", '{"name": "poor"}')):
        (folder / name).mkdir()
        (folder / name / "job.json").write_text(text)
    assert len(ctl("jobs").stdout.splitlines()) == 3


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\0" * 4096,
        '{"name": "x", "coordinator": "127.0.0.1:1", "pid": 1' + "0" * 22 + "}",
        '{"name": "x", "coordinator": "127.0.0.1:1", "pid": 1e400}',
        '{"name": "x", "coordinator": "127.0.0.1:1", "pid": -1}',
        '{"name": "x", "coordinator": "127.0.0.1:1", "started": NaN}',
        '{"name": "x", "coordinator": "127.0.0.1:1", "started": 1e300}',
        '{"name": "x", "coordinator": "127.0.0.1:1", "ended": Infinity}',
        '{"name": "x", "coordinator": "127.0.0.1:1", "started": 1, "status": 1e400}',
        '{"name": ' + "[" * 100_000,
        None,
    ],
)
def test_a_damaged_record_breaks_no_command_for_the_others(
    ctl: Ctl, folder: Path, add_job: AddJob, text: str | None
) -> None:
    add_job("digits")
    record = folder / "x" / "job.json"
    record.parent.mkdir()
    if text is None:
        record.mkdir()
    else:
        record.write_text(text)
    listed = ctl("jobs")
    assert (listed.exit_code, len(listed.stdout.splitlines())) == (0, 3)
    assert ctl("jobs", "--all", "--json").exit_code == 0
    assert ctl("status").exit_code == 0, "digits is the only one that runs"
    result = ctl("status", "x")
    assert result.exit_code == 3
    assert f"job 'x' cannot be known: {record} is damaged; running: digits" in result.stderr.replace("\n", "")


def test_the_only_running_job_needs_no_name(ctl: Ctl, add_job: AddJob) -> None:
    add_job("old", pid=ended_pid(), coordinator_pid=ended_pid(), coordinator="127.0.0.1:1")
    add_job("digits")
    assert ctl("status").exit_code == 0


def test_unknown_job_lists_the_running_ones(ctl: Ctl, add_job: AddJob) -> None:
    add_job("digits")
    add_job("text")
    result = ctl("status", "digit")
    assert result.exit_code == 3
    assert "no job 'digit'" in result.stderr
    assert "running: digits, text" in result.stderr


@pytest.mark.parametrize("command", [["jobs"], ["status"], ["status", "x"]])
def test_a_folder_of_jobs_that_cannot_be_is_one_sentence(
    ctl: Ctl, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", f"/{'x' * 300}")
    result = ctl(*command)
    assert result.exit_code == 1
    assert "cannot be read: File name too long; have XDG_STATE_HOME name the folder" in result.stderr.replace("\n", "")


def test_a_name_that_no_file_can_have_is_that_of_no_job(ctl: Ctl, folder: Path) -> None:
    result = ctl("status", "x" * 300)
    assert result.exit_code == 3
    assert result.stderr.startswith("elasticctl: no job 'xxx")


def test_an_empty_name_is_wrong_usage(ctl: Ctl, add_job: AddJob) -> None:
    add_job("digits")
    result = ctl("stop", "")
    assert result.exit_code == 2
    assert "an empty name: give one" in result.stderr


def test_an_ended_job_is_not_asked(ctl: Ctl, add_job: AddJob) -> None:
    add_job("digits", ended=2.0, status=1, reason="s0 died")
    result = ctl("status", "digits")
    assert result.exit_code == 3
    assert "job 'digits' has ended with status 1 (s0 died)" in result.stderr


@pytest.mark.parametrize(
    ("names", "words"), [([], "start one: elasticrun"), (["a", "b"], "name the job, as 2 jobs run")]
)
def test_a_name_is_needed_when_it_is_not_clear(ctl: Ctl, add_job: AddJob, names: list[str], words: str) -> None:
    for name in names:
        add_job(name)
    result = ctl("status")
    assert result.exit_code == 3
    assert words in result.stderr


GONE = {"pid": 5, "birth": "boot:7", "coordinator_pid": 6, "coordinator_birth": "boot:8"}


@pytest.mark.parametrize("command", [["status"], ["stop"], ["scale", "--workers", "2"], ["audit"]])
@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, r"the coordinator of job digits is away; its launcher \(process {pid}\) runs, and starts it again: try "),
        (
            {"pid": 5, "birth": "boot:7"},
            r"the coordinator of job digits \(process {pid}\) runs and does not answer, and its launcher is gone",
        ),
        (GONE, r"job digits is lost: .*; see {folder}/logs, and start it again: elasticrun --name digits \.\.\. \("),
        (
            {**GONE, "status": 1, "reason": "s0 died"},
            "job digits is over: failed with status 1, s0 died; see {folder}/logs ",
        ),
        ({**GONE, "host": "otherhost"}, r"job digits runs on otherhost, or ran there: ask there \("),
        ({**GONE, "host": socket.gethostname()}, "job digits is lost: "),
        (
            {**GONE, "birth": f"{boot_id()}:7", "host": "otherhost"},
            "job digits is lost: ",  # in a container of this machine
        ),
    ],
    ids=["away", "unwatched", "lost", "over", "elsewhere", "rebooted", "contained"],
)
def test_of_a_coordinator_that_does_not_answer_is_said_what_is_known(
    ctl: Ctl, add_job: AddJob, command: list[str], fields: dict[str, Any], words: str
) -> None:
    folder = add_job("digits", coordinator="127.0.0.1:1", **fields)
    result = ctl(command[0], "digits", *command[1:])
    assert result.exit_code == 4
    expected = "elasticctl: " + words.format(folder=folder, pid=os.getpid()) + ".*no coordinator answers at 127.0.0.1:1"
    assert re.match(expected, result.stderr.replace("\n", " "))


def test_a_lost_job_is_started_again_from_its_checkpoints(ctl: Ctl, add_job: AddJob) -> None:
    folder = add_job("digits", coordinator="127.0.0.1:1", **GONE)
    (folder / "checkpoints" / "version-0000000120-5f1c").mkdir(parents=True)
    again = f"start it again: elasticrun --name digits --restore {folder}/checkpoints ... ("
    assert again in ctl("status", "digits").stderr.replace("\n", "")


def test_whoever_has_the_port_of_a_lost_job_is_not_taken_for_its_coordinator(ctl: Ctl, add_job: AddJob) -> None:
    (add_job("digits", **GONE) / "token").write_text("00" * 16)
    result = ctl("status", "digits")
    assert result.exit_code == 4
    assert result.stderr.startswith("elasticctl: job digits is lost: ")


def test_a_lost_job_is_named_where_none_runs(ctl: Ctl, add_job: AddJob) -> None:
    add_job("digits", coordinator="127.0.0.1:1", **GONE)
    result = ctl("status")
    assert result.exit_code == 3
    assert "but some are lost (digits: `elasticctl status NAME` says more)" in result.stderr


def test_a_job_of_another_machine_is_named_where_none_runs_here(ctl: Ctl, add_job: AddJob) -> None:
    add_job("digits", coordinator="127.0.0.1:1", host="otherhost", **GONE)
    told = "but some are lost or on other machines (digits: `elasticctl status NAME` says more)"
    assert told in ctl("status").stderr


def test_a_coordinator_that_is_named_by_its_address_and_does_not_answer(ctl: Ctl, digits: Path) -> None:
    result = ctl("status", "--coordinator", "127.0.0.1:1", "--token-file", str(digits / "token"))
    assert result.exit_code == 4
    assert "no coordinator answers at 127.0.0.1:1" in result.stderr
    assert result.stderr.endswith(": is the job running, and can this machine reach it?\n")


def test_wrong_token_is_a_refusal(ctl: Ctl, add_job: AddJob) -> None:
    (add_job("digits") / "token").write_text("00" * 16)
    assert ctl("status", "digits").exit_code == 5


def test_broken_token_file(ctl: Ctl, add_job: AddJob) -> None:
    (add_job("digits") / "token").write_text("secret")
    result = ctl("status", "digits")
    assert result.exit_code == 1
    assert "cannot read the job token" in result.stderr


def test_by_address(ctl: Ctl, fake: Any, digits: Path) -> None:
    result = ctl("status", "--coordinator", fake.address, "--token-file", str(digits / "token"), "--json")
    assert json.loads(result.stdout)["job"] == "digits"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["digits", "--coordinator", "h:1", "--token-file", "f"], "not both"),
        (["--coordinator", "h:1"], "needs --token-file"),
        (["--token-file", "f"], "goes with --coordinator"),
        (["--coordinator", "h", "--token-file", "f"], "HOST:PORT"),
    ],
)
def test_arguments_that_do_not_go_together(ctl: Ctl, arguments: list[str], words: str) -> None:
    result = ctl("status", *arguments)
    assert result.exit_code == 2
    assert words in result.stderr
