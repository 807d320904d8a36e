"""The commands by which people operate a cluster: hold, release, scale, top, logs, and why a job waits."""

import io
import json
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from dl2_scheduler.cli import app
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.snapshot import Allocation, Grant, JobState, Snapshot
from dl2_scheduler.commands.cluster import top
from dl2_scheduler.commands.cluster.logs import pieces, skip_to_tail
from dl2_scheduler.live.history import History
from dl2_scheduler.live.policies import Policies
from dl2_scheduler.live.service import ClusterService, serving
from dl2_scheduler.live.slot_loop import SlotLoop
from dl2_scheduler.policies.registry import make_live_policy
from tests.dl2_scheduler.clusters import job, nodes
from tests.dl2_scheduler.played_cluster import document


@pytest.fixture
def loop(tmp_path, serve, runtime, clock, monkeypatch):
    """Of a cluster of 4 slots behind its socket, under DRF, with a job a that has begun and a job b that waits."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = tmp_path / "dl2"
    folder.mkdir()
    cluster, history = serve("1x4"), History(folder / "decisions.sqlite")
    policies = Policies(make_live_policy, "drf", folder)
    runtime.log = lambda name, submission, run: tmp_path / f"{name}-{submission}.{run}.log"
    with serving(ClusterService(cluster.desk, history, policies), folder):
        loop = SlotLoop(cluster, policies, NodeRule.SPREAD, history, now=clock.now)
        cluster.desk.submit(document("a"), Path())
        loop.slot()
        minimum = yaml.safe_load(document("b"))
        minimum["spec"]["workers"]["min"] = 3
        cluster.desk.submit(yaml.safe_dump(minimum), Path())
        yield loop
    history.close()


def dl2(*words):
    result = CliRunner().invoke(app, [str(word) for word in words])
    return result.exit_code, result.output


def test_by_hand(loop, runtime):
    assert dl2("scale", "a", "--workers", 1) == (1, "dl2: a is scaled by the policy; dl2 hold a first\n")
    assert dl2("hold", "a") == (
        0,
        "a: held; dl2 scale a changes its counts, dl2 release a gives it back to the policy\n",
    )
    assert dl2("scale", "a", "--workers", 1) == (0, "a: it is to have 1 worker and 2 servers\n")
    loop.slot()
    assert runtime.calls[-1] == ("scale", "a", 1, 2)
    assert "running, held" in dl2("jobs")[1]
    assert json.loads(dl2("status", "a", "--json")[1])["held"] is True
    assert dl2("scale", "a", "--workers", 0)[0] == 2
    assert dl2("release", "a") == (0, "a: released\n")
    assert dl2("release", "a")[0] == 1


def test_a_type_of_any_length_leaves_a_job_its_row(loop):
    long = yaml.safe_load(document("long"))
    long["spec"]["modelType"] = "x" * 100_000
    loop._cluster.desk.submit(yaml.safe_dump(long), Path())
    assert len(dl2("jobs")[1]) < 10_000
    assert "x" * 100_000 in dl2("status", "long")[1]


def test_a_job_that_waits_says_why(loop):
    assert "the next slot decides about it" in dl2("status", "b")[1]
    dl2("hold", "a")
    loop.slot()
    status = dl2("status", "b")[1]
    assert "waiting: held jobs take the room that it needs; waits: " in status
    assert "from 3 to 4" in status


@pytest.mark.parametrize("letter", ["x", "訓"])
def test_a_refusal_that_names_very_much_is_told_as_far_as_grpc_takes_it(loop, letter):
    """It names all jobs where there is none of a name."""
    status, output = dl2("stop", letter * 20_000)
    assert (status, output.startswith(f"dl2: no job {letter * 700}"), output.endswith("...\n")) == (1, True, True)


def test_a_long_history_is_shown(loop, tmp_path):
    """Of more than the 4 MiB that grpc takes where nobody says how much."""
    reason = "x" * 1_000_000
    with closing(History(tmp_path / "dl2" / "decisions.sqlite")) as history:
        for number in range(1, 6):
            now = Snapshot(number, 20.0, nodes({"cpu": 4.0}), (JobState(job("a")),))
            history.decided(loop._now(), "drf", now, Allocation({"a": Grant(1, 1, reason)}))
    status, output = dl2("why", "a", "--last", 100_000, "--json")
    assert (status, [len(each["reason"]) for each in json.loads(output)["decisions"][1:]]) == (0, [1_000_000] * 5)


def test_top(loop):
    output = dl2("top")[1].split("\n")
    assert output[2].split() == ["node-0", "4", "4", "slots"]
    assert output[5].split() == ["a", "w0", "node-0", "0.50", "-", "1", "-"]
    assert output[-2] == "isolation: played"
    found = json.loads(dl2("top", "--json")[1])
    assert found["nodes"][0] == {"name": "node-0", "capacity": {"slots": 4.0}, "used": {"slots": 4.0}}
    assert [task["task"] for task in found["tasks"]] == ["w0", "w1", "s0", "s1"]


def test_programs_get_numbers_as_numbers(loop):
    """Protobuf's own JSON has integers of 64 bits as texts."""
    assert [task["memory_bytes"] for task in json.loads(dl2("top", "--json")[1])["tasks"]] == [1 << 20] * 4
    decided = json.loads(dl2("why", "a", "--json")[1])["decisions"][0]
    assert decided["slot"] == 0
    assert "shadow" not in decided, "absent"
    assert json.loads(dl2("policy", "--json")[1])["updates"] == 0


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("memory", 926_941_184.0, "884 MiB"),
        ("memory", 25_769_803_776.0, "24 GiB"),
        ("ephemeral-storage", 3.3e12, "3.0 TiB"),
        ("cpu", 0.25, "0.25"),
        ("nvidia.com/gpu", 8.0, "8"),
        ("pods", 1_000_000.0, "1,000,000"),
    ],
)
def test_amounts_are_for_people(resource, amount, text):
    assert top._text(resource, amount) == text


def test_logs(loop, tmp_path):
    (tmp_path / "a-1.1.log").write_text("one\ntwo\nthree\n")
    logs = tmp_path / "dl2" / "elastic_ps" / "jobs" / "a" / "logs"
    logs.mkdir(parents=True)
    (logs / "w0.log").write_text("of w0\n")
    assert dl2("logs", "a") == (0, "one\ntwo\nthree\n")
    assert dl2("logs", "a", "--tail", 1) == (0, "three\n")
    assert dl2("logs", "a", "--node", "w0") == (0, "of w0\n")
    assert dl2("logs", "a", "--node", "w9") == (
        1,
        "dl2: a has no node w9 since its last start; there is output of: w0\n",
    )
    assert dl2("logs", "b") == (1, "dl2: b has no output: it has not begun (the next slot decides about it)\n")


def test_a_log_that_is_not_there_is_told(loop, tmp_path):
    gone = tmp_path / "a-1.1.log"
    assert dl2("logs", "a") == (1, f"dl2: a has no output (yet): there is no {gone}\n")


def test_a_log_that_cannot_be_read_is_told(loop, tmp_path):
    (tmp_path / "a-1.1.log").mkdir()
    assert dl2("logs", "a") == (1, f"dl2: {tmp_path / 'a-1.1.log'}: Is a directory\n")


def test_a_followed_file_that_a_later_start_has_replaced(tmp_path):
    path, later = tmp_path / "w0.log", tmp_path / "later"
    path.write_text("first\n")
    later.write_text("second\n")
    looks = iter([(path, False), (path, False), (path, False), (path, True)])
    waits = iter([path.unlink, lambda: later.rename(path), lambda: None])  # for a moment there is none
    assert b"".join(pieces(lambda: next(looks), None, True, lambda: next(waits)())) == b"first\nsecond\n"


def test_a_followed_log_goes_on_through_later_starts_to_the_end(tmp_path):
    first, second = tmp_path / "1", tmp_path / "2"
    first.write_text("old\nbegun\n")
    looks = iter([(first, False), (first, False), (second, False), (second, True)])
    writes = iter([lambda: append(first, "more\n"), lambda: again(), lambda: append(second, "done\n")])

    def append(path, text):
        with path.open("a") as file:
            file.write(text)

    def again():
        append(first, "suspended\n")
        second.write_text("restored\n")

    found = pieces(lambda: next(looks), 1, True, lambda: next(writes)())
    assert b"".join(found) == b"begun\nmore\nsuspended\nrestored\ndone\n"
    assert next(writes, None) is None


@pytest.mark.parametrize("lines", [0, 1, 2, 5, None])
@pytest.mark.parametrize("end", ["", "\n"])
def test_the_last_lines(lines, end):
    text = ("\n".join(["x" * 50_000, "y" * 50_000, "z"]) + end).encode()
    file = io.BytesIO(text)
    skip_to_tail(file, lines)
    expected = text.splitlines(keepends=True)
    assert file.read() == b"".join(expected[len(expected) - min(3, 3 if lines is None else lines) :])


@pytest.mark.parametrize("option", [("--probes", "9"), ("--namespace", "jobs"), ("--context", "far")])
def test_an_option_of_kubernetes_alone_is_told(tmp_path, option):
    result = CliRunner().invoke(app, ["serve", "--slots", "2x8", *option, "--folder", str(tmp_path)])
    assert result.exit_code == 2
    assert f"dl2: {option[0]}: of a Kubernetes cluster alone: give --kube too, or leave it out" in result.output


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--slots", "2x8", "--refit"), "--refit: spread has no model of speeds to fit anew"),
        (("--slots", "2x8", "--move-tasks", "1"), "spread knows no speeds by which a move could be costed"),
        (("--slots", "2x8", "--move-tasks", "-1"), "--move-tasks is -1: give how many tasks"),
        (("--slots", "2x8", "--learn-cores", "1"), "--learn-cores is what learning takes: give --learn too"),
        (("--slots", "2x8", "--share-with", "{shared}"), "--share-with shares what is learnt: give --learn too"),
        (("--slots", "2x8", "--learn", "--share-with", "{shared}", "--explore", "51"), "--explore is 51: give the"),
        (("--slots", "2y8", "--learn", "--share-with", "{shared}"), "--slots 2y8: '2y8' is not NODESxSLOTS"),
        (("--learn", "--share-with", "{shared}"), "give --slots, as in 2x8"),
        (("--slots", "2x8", "--learn", "--share-with", "{shared}", "--probes", "9"), "--probes: of a Kubernetes"),
    ],
)
def test_what_cannot_be_served_so_is_refused_before_anything_begins(tmp_path, options, told):
    folder, shared = tmp_path / "state", tmp_path / "shared"
    given = [option.format(shared=shared) for option in options]
    result = CliRunner().invoke(app, ["serve", *given, "--folder", str(folder)])
    assert result.exit_code == 2
    assert told in result.output
    assert not folder.exists()
    assert not shared.exists()
