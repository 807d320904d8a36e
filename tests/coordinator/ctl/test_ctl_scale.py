"""elasticctl scale and drain: what they ask for, how they wait, what they print."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from coordinator.ctl import following
from protos import elastic_pb2 as pb
from tests.coordinator.ctl.ctl_fake import committed, plan, running_status

Ctl = Callable[..., Any]


@pytest.fixture(autouse=True)
def _job(digits: Path) -> None:
    """Every test has the job that the fake coordinator runs."""


def test_scale_waits_and_prints_the_four_steps(ctl: Ctl, fake: Any) -> None:
    fake.histories = [[plan(7, "REGISTERED")], [plan(7, "SYNCING")], [committed(7)]]
    result = ctl("scale", "digits", "--workers", "4", "--servers", "3")
    assert result.exit_code == 0
    (request,) = fake.requests["Scale"]
    assert (request.workers, request.servers, request.dry_run, request.wait_in_queue) == (4, 3, False, True)
    assert request.cause == "operator"
    rows = {line.rsplit(maxsplit=1)[0].strip(): line.split()[-1] for line in result.stdout.splitlines() if line.strip()}
    assert (rows["registration"], rows["assignment"], rows["migration"], rows["worker update"]) == (
        "812",
        "1.5",
        "95.2",
        "3.1",
    )
    assert "moved 400 kB (live); suspension ms: w0 0.8  w2 1.2" in result.stdout
    assert [line.split()[2] for line in result.stderr.splitlines()[1:]] == ["REGISTERED", "SYNCING"]
    assert {asked.request for asked in fake.requests["Plans"]} == {fake.scale_reply.request}, "not for all of the job's"


def test_scale_json_holds_reply_and_outcome(ctl: Ctl, fake: Any) -> None:
    fake.histories = [[committed(7)]]
    value = json.loads(ctl("scale", "--workers", "4", "--json").stdout)
    assert value["plan"] == 7
    assert value["outcome"]["phase"] == "COMMITTED"


def test_scale_one_role_leaves_the_other(ctl: Ctl, fake: Any) -> None:
    assert ctl("scale", "--servers", "3", "--detach", "--mode", "pause", "--no-wait").exit_code == 0
    (request,) = fake.requests["Scale"]
    assert (request.workers, request.servers, request.mode, request.wait_in_queue) == (0, 3, pb.PAUSE, False)


def test_scale_detached_returns_at_once(ctl: Ctl, fake: Any) -> None:
    fake.scale_reply = pb.ScaleReply(plan=7, request=3, joining_workers=2)
    result = ctl("scale", "--workers", "4", "--detach")
    assert result.stdout == "plan 7 accepted: start 2 workers\n"
    assert "Plans" not in fake.requests


def test_scaling_that_leaves_one_server_says_that_nothing_is_protected_then(ctl: Ctl, fake: Any) -> None:
    fake.scale_reply = pb.ScaleReply(plan=7, request=3, leaving=["s1"], unprotects=True)
    words = "take out s1; nothing is protected then, as nobody can follow the only server"
    assert words in ctl("scale", "--servers", "1", "--detach").stdout.replace("\n", " ")
    fake.scale_reply.bytes_to_move = 100
    shown = ctl("scale", "--servers", "1", "--dry-run").stdout.replace("\n", " ")
    assert "; nothing is protected then, as nobody can follow the only server; nothing was changed" in shown


def test_scale_cancelled_fails_with_the_reason(ctl: Ctl, fake: Any) -> None:
    fake.histories = [[plan(7, "CANCELLED", reason="w3 exited with status 1")]]
    result = ctl("scale", "--workers", "4")
    assert result.exit_code == 1
    assert "w3 exited with status 1" in result.stdout


def test_scale_follows_its_wish_into_the_next_plan(ctl: Ctl, fake: Any) -> None:
    cancelled = plan(7, "CANCELLED", reason="w1 died")
    fake.statuses[0].requests.append(3)
    fake.histories = [[cancelled, plan(8, "ASSIGNED")], [cancelled, committed(8)]]
    result = ctl("scale", "--workers", "4")
    assert result.exit_code == 0
    assert "plan 8  COMMITTED" in result.stdout


def test_queued_scale_waits_for_its_own_plan(ctl: Ctl, fake: Any) -> None:
    waiting = running_status()
    waiting.queued_requests.append(3)
    fake.statuses = [waiting, waiting, running_status()]
    fake.scale_reply = pb.ScaleReply(queued=True, request=3)
    before, death = committed(6, requests=[2]), plan(7, "COMMITTED", cause="death of w1", requests=[])
    fake.histories = [[before], [before, death], [before, death, committed(9)]]
    result = ctl("scale", "--workers", "4")
    assert "queued behind the plan under way" in result.stderr
    assert "plan 9  COMMITTED" in result.stdout


def test_queued_scale_that_is_replaced_fails_at_once_and_says_by_what(ctl: Ctl, fake: Any) -> None:
    fake.scale_reply = pb.ScaleReply(queued=True, request=3)
    fake.statuses[0].withdrawn[3] = "replaced by: scale to 5 workers (operator)"
    fake.histories = [[plan(6, "SYNCING", requests=[2])]]
    result = ctl("scale", "--workers", "4")
    assert result.exit_code == 1
    assert "elasticctl: the request was replaced by: scale to 5 workers (operator)" in result.stderr


def test_queued_scale_to_what_is_when_its_turn_comes(ctl: Ctl, fake: Any) -> None:
    fake.scale_reply = pb.ScaleReply(queued=True, request=3)
    fake.histories = [[committed(6, requests=[2])]]
    result = ctl("scale", "--workers", "4")
    assert (result.exit_code, "nothing to do" in result.stdout) == (0, True)


def test_scale_without_those_who_did_not_come_is_a_failure(ctl: Ctl, fake: Any) -> None:
    late = committed(7)
    late.missing.append("1 worker")
    fake.histories = [[late]]
    result = ctl("scale", "--workers", "4")
    assert result.exit_code == 1
    assert "without, as they did not come: 1 worker" in result.stdout


def test_scale_survives_a_coordinator_that_restarts(ctl: Ctl, fake: Any) -> None:
    fake.histories = [[committed(7)]]
    fake.absences = 2
    assert ctl("scale", "--workers", "4").exit_code == 0
    assert fake.absences == 0


def test_scale_of_a_job_that_ends(ctl: Ctl, fake: Any) -> None:
    fake.statuses[0].phase = "failed"
    fake.statuses[0].reason = "s0 died and there is no checkpoint"
    result = ctl("scale", "--workers", "4")
    assert result.exit_code == 1
    assert "s0 died and there is no checkpoint" in result.stderr


def test_scale_prints_the_lines_to_run(ctl: Ctl, fake: Any) -> None:
    line = "elasticrun --role worker --coordinator 127.0.0.1:4000 --token-file /" + "x" * 200 + "/token train.py"
    fake.scale_reply = pb.ScaleReply(plan=7, lines=[line])
    assert line in ctl("scale", "--workers", "4", "--detach").stdout
    result = ctl("scale", "--workers", "4", "--detach", "--json")
    assert json.loads(result.stdout)["lines"] == [line]
    assert line in result.stderr


def test_dry_run_prints_moves(ctl: Ctl, fake: Any) -> None:
    fake.scale_reply = pb.ScaleReply(
        moves=[pb.Move(source="s0", target="s2", blocks=3, bytes=4_000_000)],
        bytes_to_move=4_000_000,
        seconds_estimated=0.4,
        joining_workers=12,
        joining_servers=1,
        leaving=["w1", "w0"],
    )
    result = ctl("scale", "--servers", "3", "--dry-run")
    assert fake.requests["Scale"][0].dry_run
    assert "s0    s2       3   4 MB" in result.stdout
    line = (
        "would start 12 workers and 1 server, take out w1 w0, move 3 blocks, 4 MB, in about 0.4 s; nothing was changed"
    )
    assert line in result.stdout
    value = json.loads(ctl("scale", "--servers", "3", "--dry-run", "--json").stdout)
    assert value["moves"] == [{"source": "s0", "target": "s2", "blocks": 3, "bytes": 4_000_000}]


def test_a_request_that_a_coordinator_forgets_with_its_journal_is_not_fulfilled(ctl: Ctl, fake: Any) -> None:
    began = fake.statuses[0]
    waiting, away, back = pb.StatusReply(), pb.StatusReply(job=began.job, phase="rebuilding"), pb.StatusReply()
    for copy in (waiting, back):
        copy.CopyFrom(began)
    waiting.requests.append(3)
    back.rebuilt = True
    fake.statuses = [waiting, away, away, back]
    fake.histories = [[plan(7, "REGISTERED")], []]
    result = ctl("scale", "--workers", "4")
    assert result.exit_code == 1
    assert "the coordinator lost its journal meanwhile, and the request with it" in result.stderr


@pytest.mark.parametrize(("forgotten", "status"), [(4000, 1), (2, 0)])
def test_a_request_is_forgotten_also_by_who_had_lost_a_journal_before(
    ctl: Ctl, fake: Any, forgotten: int, status: int
) -> None:
    first, then = fake.statuses[0], pb.StatusReply()
    first.rebuilt = True
    then.CopyFrom(first)
    first.requests.append(3)
    then.forgotten = forgotten
    fake.statuses = [first, then]
    result = ctl("scale", "--workers", "4")
    assert (result.exit_code, "lost its journal meanwhile" in result.stderr) == (status, bool(status))


def test_nothing_to_do(ctl: Ctl, fake: Any) -> None:
    fake.scale_reply = pb.ScaleReply()
    assert "nothing to do" in ctl("scale", "--workers", "3").stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--workers", "0"], "--workers must be at least 1, not 0"),
        (["--servers", "-2"], "--servers must be at least 1, not -2"),
        (["--workers", "100000000000000"], "--workers 100000000000000: a job has at most 65535 of a role"),
        ([], "say what to change"),
    ],
)
def test_counts_are_checked_before_anything_is_asked(ctl: Ctl, fake: Any, arguments: list[str], words: str) -> None:
    result = ctl("scale", "digits", *arguments)
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.replace("│", " ").split())
    assert not fake.requests


def test_refusal(ctl: Ctl, fake: Any) -> None:
    fake.refusals["Scale"] = (grpc.StatusCode.FAILED_PRECONDITION, "9 servers wanted, but the model has 8 blocks")
    result = ctl("scale", "--servers", "9")
    assert result.exit_code == 5
    assert result.stderr == "elasticctl: 9 servers wanted, but the model has 8 blocks\n"


@pytest.mark.parametrize("names", [["s0"], ["digits", "s0"]])
def test_drain(ctl: Ctl, fake: Any, names: list[str]) -> None:
    fake.histories = [[committed(7)]]
    result = ctl("drain", *names)
    assert result.exit_code == 0
    assert fake.requests["Drain"][0].node == "s0"
    assert "plan 7  COMMITTED" in result.stdout


@pytest.mark.parametrize("command", ["drain", "evict"])
def test_a_job_alone_is_no_node(ctl: Ctl, fake: Any, command: str) -> None:
    result = ctl(command, "digits")
    assert result.exit_code == 2
    assert f"digits is a job; name the node: elasticctl {command} digits NODE" in result.stderr
    assert not fake.requests


def test_drain_follows_its_wish_into_the_next_plan(ctl: Ctl, fake: Any) -> None:
    cancelled = plan(7, "CANCELLED", reason="new tensors")
    fake.statuses[0].requests.append(3)
    fake.histories = [[cancelled], [cancelled, committed(8)]]
    assert "plan 8  COMMITTED" in ctl("drain", "s0").stdout


def test_drain_of_a_node_that_joins_says_that_it_is_let_go(ctl: Ctl, fake: Any) -> None:
    fake.scale_reply = pb.ScaleReply(leaving=["w3"])
    result = ctl("drain", "w3")
    assert (result.exit_code, result.stdout) == (
        0,
        "w3 is let go: it has no part in the job, and ends by itself\n",
    )


@pytest.mark.parametrize("names", [["w1"], ["digits", "w1"]])
def test_evict_tells_what_follows(ctl: Ctl, fake: Any, names: list[str]) -> None:
    result = ctl("evict", *names)
    assert (result.exit_code, result.stdout) == (0, "w1 is expelled; the others go on without it\n")
    assert fake.requests["Evict"][0].node == "w1"


def test_evict_takes_one_node(ctl: Ctl, fake: Any) -> None:
    assert ctl("evict", "digits", "s0", "s1").exit_code == 2
    assert not fake.requests


def test_drain_takes_one_node(ctl: Ctl, fake: Any) -> None:
    assert ctl("drain", "digits", "s0", "s1").exit_code == 2
    assert not fake.requests


def test_ctrl_c_leaves_the_plan_alone(ctl: Ctl, fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any) -> pb.Plan:
        raise KeyboardInterrupt

    monkeypatch.setattr(following, "wait_for_plan", interrupt)
    result = ctl("scale", "--workers", "4")
    assert result.exit_code == 130
    assert "the plan goes on without you" in result.stderr
    assert "Cancel" not in fake.requests
