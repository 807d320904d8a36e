"""A coordinator that a Kubernetes operator runs: who may ask it for what, where it is reached, how it is probed."""

import re
import subprocess
import sys
import threading

import grpc
import pytest

from coordinator.__main__ import main
from coordinator.core import events as ev
from coordinator.core.job import JobPhase
from coordinator.server import addresses
from coordinator.server.addresses import reachable
from coordinator.server.status_view import status
from elastic_ps.core.errors import ConfigurationError
from protos import elastic_pb2 as pb
from protos import elastic_pb2_grpc as rpc
from tests.coordinator.played_job import World, text
from tests.coordinator.token_channel import showing

BY = "operator-controller: spec"


@pytest.fixture
def world():
    return World(2, 1, operator=True, name="digits")


def test_a_direct_request_is_refused_with_the_right_command(world):
    assert "`elasticctl --kube scale digits --workers N" in text(world.ask(ev.ScaleAsked, 3, 1))
    assert "kubectl delete pod" in text(world.ask(ev.DrainAsked, "w1"))
    assert "`kubectl delete elasticjob digits`" in text(world.ask(ev.StopAsked, True))
    assert world.plan is None
    assert world.state.job.phase is JobPhase.RUNNING


def test_what_only_asks_is_answered(world):
    assert world.ask(ev.ScaleAsked, 3, 2, dry_run=True).joining_workers == 1


def test_the_operators_own_requests_pass(world):
    assert world.ask(ev.ScaleAsked, 3, 1, cause=BY).plan
    world.settle()
    assert world.counts == (3, 1)
    assert world.ask(ev.DrainAsked, "w1", cause=BY).plan
    world.settle()
    assert world.counts == (2, 1)
    world.ask(ev.StopAsked, True, BY)
    assert (world.state.job.phase, world.state.job.reason) == (JobPhase.FINISHED, BY)


def test_a_node_that_asks_to_leave_is_nobodys_mistake(world):
    world.ask(ev.LeaveAsked, "w1", world.node("w1").role)
    world.settle()
    assert world.counts == (1, 1)


def test_without_an_operator_anybody_with_the_token_may_ask():
    world = World(2, 1)
    assert world.ask(ev.ScaleAsked, 3, 1).plan


def test_status_names_nodes_by_their_launchers_names(world):
    message = status(world.state, world.now)
    assert {node.member.id: node.nonce for node in message.nodes} == {node.id: node.nonce for node in world.alive}


# ---- where it is reached ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "digits-coordinator.default", "10.1.2.3", "[::1]"])
def test_a_host_that_is_one_is_what_others_hear(host):
    assert reachable(host) == host


def test_all_addresses_are_reached_by_the_one_that_leads_out(monkeypatch):
    class Probe:
        def __init__(self, *_kind): ...
        def __enter__(self):
            return self

        def __exit__(self, *_error): ...
        def connect(self, address):
            assert address == ("192.0.2.1", 9)

        def getsockname(self):
            return ("10.0.0.7", 40000)

    monkeypatch.setattr(addresses.socket, "socket", Probe)
    assert reachable("0.0.0.0") == "10.0.0.7"


def test_a_machine_without_a_way_out_must_be_told_its_name(monkeypatch):
    def no_route(*_kind):
        raise OSError("Network is unreachable")

    monkeypatch.setattr(addresses.socket, "socket", no_route)
    with pytest.raises(ConfigurationError, match="say with --advertise"):
        reachable("0.0.0.0")


@pytest.mark.slow
def test_the_process_listens_everywhere_says_where_it_is_reached_and_answers_probes(tmp_path):
    token = bytes(range(16))
    (tmp_path / "token").write_text(token.hex())
    where = ["--job", "j", "--folder", str(tmp_path / "job"), "--token-file", str(tmp_path / "token")]
    how = ["--host", "0.0.0.0", "--advertise", "localhost", "--operator", "--metrics", "0"]
    with subprocess.Popen(
        [sys.executable, "-m", "coordinator", *where, *how], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        ending = threading.Timer(30, process.kill)
        ending.start()
        try:
            name, _, port = process.stdout.readline().decode().removeprefix("listening on ").strip().rpartition(":")
            assert name == "localhost"
            assert (tmp_path / "job" / "coordinator.addr").read_text() == f"localhost:{port}\n"
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                check = channel.unary_unary("/grpc.health.v1.Health/Check")
                assert check(b"", timeout=10) == b"\x08\x01"  # as Kubernetes' grpc probe asks, without a token
                stub = rpc.CoordinatorStub(showing(channel, token))
                with pytest.raises(grpc.RpcError, match="elasticctl --kube scale j"):
                    stub.Scale(pb.ScaleRequest(workers=2), timeout=10)
        finally:
            ending.cancel()
            process.terminate()
            _, said = process.communicate()
    told = re.search(rb"metrics at port (\d+)", said)
    assert told, said


def test_it_does_not_start_where_its_checkpoints_could_not_be_written(tmp_path, capsys):
    where = ["--job", "j", "--folder", str(tmp_path / "job"), "--token-file", str(tmp_path / "token")]
    assert main([*where, "--checkpoint", "s3://no-such/x"]) == 2
    assert "checkpoints cannot lie at s3://no-such/x: " in capsys.readouterr().err
    assert not (tmp_path / "job").exists()
