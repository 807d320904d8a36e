"""The coordinator as a process: its options, where it listens, how it ends."""

import errno
import os
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
from contextlib import ExitStack

import grpc
import pytest

from coordinator.__main__ import main
from coordinator.core.job import DurableJob
from coordinator.core.plans.scale_goal import ScaleGoal
from coordinator.server.journal import JobFolderUnwritable, Journal
from coordinator.server.ledger_files import Ledger
from elastic_ps.core.errors import EXIT_LATER
from elastic_ps.system.process.signals import ENDS_COORDINATOR
from protos import elastic_pb2 as pb
from protos import elastic_pb2_grpc as rpc
from tests.coordinator.token_channel import showing
from tests.elastic_ps.transport.conftest import NO_IPV6

TOKEN = bytes(range(16))


def command(tmp_path, *more):
    (tmp_path / "token").write_text(TOKEN.hex())
    where = ["--job", "j", "--folder", str(tmp_path / "job"), "--token-file", str(tmp_path / "token")]
    return [*where, *more]


@pytest.mark.slow
@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1", "127.0.0.1:"), pytest.param("::1", "[::1]:", marks=NO_IPV6)])
def test_the_process_says_where_it_listens_and_ends_on_sigterm(tmp_path, host, shown):
    with subprocess.Popen(
        [sys.executable, "-m", "coordinator", *command(tmp_path, "--host", host)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        line = process.stdout.readline().decode()
        address = line.removeprefix("listening on ").strip()
        assert address.startswith(shown)
        assert (tmp_path / "job" / "coordinator.addr").read_text() == f"{address}\n"
        with grpc.insecure_channel(address) as channel:
            reply = rpc.CoordinatorStub(showing(channel, TOKEN)).Status(pb.StatusRequest(), timeout=10)
        assert (reply.job, reply.phase) == ("j", "starting")
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(20) == 0
        process.communicate()


@pytest.mark.slow
def test_one_that_a_launcher_has_started_ends_by_that_ones_signal(tmp_path):
    """systemd sends SIGTERM to all processes of a service: the nodes had nobody to leave by."""
    with subprocess.Popen(
        [sys.executable, "-m", "coordinator", *command(tmp_path, "--launched")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        address = process.stdout.readline().decode().removeprefix("listening on ").strip()
        with grpc.insecure_channel(address) as channel:
            stub = rpc.CoordinatorStub(showing(channel, TOKEN))
            stub.Status(pb.StatusRequest(), timeout=10)
            for number in (signal.SIGTERM, signal.SIGINT):
                os.kill(process.pid, number)
                assert any(b"left to elasticrun" in line for line in process.stderr)
            assert stub.Status(pb.StatusRequest(), timeout=10).job == "j"
        os.kill(process.pid, ENDS_COORDINATOR)
        assert process.wait(20) == 0
        process.communicate()


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--seed", "99999999999999999999999"], "must be from 0 to 18446744073709551615"),
        (["--workers", "65536"], "must be at most 65535"),
        (["--replicas", "2"], "argument --replicas: must be 0 or 1, not 2"),
        (["--replicas", "none"], "argument --replicas: 'none' is no integer"),
    ],
)
def test_numbers_that_cannot_be_are_wrong_usage(tmp_path, capsys, more, says):
    with pytest.raises(SystemExit) as error:
        main(command(tmp_path, *more))
    assert error.value.code == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "status", "says"),
    [
        (["--restore", "/nowhere"], 2, "no checkpoint of this job under /nowhere"),
        (["--port", "1", "--host", "192.0.2.1"], EXIT_LATER, "cannot listen"),
    ],
)
def test_it_says_why_it_cannot_start(tmp_path, capsys, more, status, says):
    assert main(command(tmp_path, *more)) == status
    assert says in capsys.readouterr().err


def test_a_coordinator_that_cannot_write_its_journal_ends_with_one_sentence(tmp_path, monkeypatch, capsys):
    def full(journal, *rows):
        raise JobFolderUnwritable(tmp_path / "journal.sqlite", "database or disk is full")

    monkeypatch.setattr(Journal, "write", full)
    assert main(command(tmp_path)) == EXIT_LATER
    said = capsys.readouterr().err
    assert said.splitlines()[-1].startswith(f"coordinator: cannot write {tmp_path}/journal.sqlite: database or disk")
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), EXIT_LATER),
        (OSError(errno.ENOTDIR, "Not a directory"), 2),
        (sqlite3.OperationalError("database or disk is full"), EXIT_LATER),
        (sqlite3.OperationalError("database is locked"), EXIT_LATER),
        (sqlite3.DatabaseError("file is not a database"), 2),
    ],
)
def test_its_status_says_whether_it_may_go_on_later(tmp_path, monkeypatch, capsys, failure, status):
    def fails(*arguments, **options):
        raise failure

    monkeypatch.setattr(sqlite3, "connect", fails)
    assert main(command(tmp_path)) == status
    assert str(failure) in capsys.readouterr().err


class Unreadable:
    """An `Unreadable` is a database that opens, and then cannot be read."""

    def __init__(self, error):
        self._error = error

    def execute(self, statement):
        if statement.startswith("SELECT"):
            raise self._error

    def close(self):
        pass


@pytest.mark.parametrize(
    ("words", "code", "status", "said"),
    [
        ("disk I/O error", sqlite3.SQLITE_IOERR_READ, EXIT_LATER, "cannot read the journal"),
        ("no such table: job", sqlite3.SQLITE_ERROR, 2, "is damaged"),
    ],
)
def test_a_disk_that_does_not_answer_is_no_damage_of_the_journal(
    tmp_path, monkeypatch, capsys, words, code, status, said
):
    failure = sqlite3.OperationalError(words)
    failure.sqlite_errorcode = code
    monkeypatch.setattr(sqlite3, "connect", lambda *arguments, **options: Unreadable(failure))
    assert main(command(tmp_path)) == status
    told = capsys.readouterr().err
    assert words in told
    assert said in told


def test_a_journal_with_a_page_of_zeros_is_one_sentence(tmp_path, capsys):
    folder = tmp_path / "job"
    folder.mkdir()
    journal = Journal(folder / "journal.sqlite")
    journal.write(DurableJob(ScaleGoal(1, 1)))
    journal.close()
    path = folder / "journal.sqlite"
    path.write_bytes(path.read_bytes()[:4096] + b"\0" * 4096)
    assert main(command(tmp_path)) == 2
    assert "journal" in capsys.readouterr().err.splitlines()[-1]


def test_it_listens_before_it_reads_its_ledger(tmp_path, monkeypatch, capsys):
    listened = []

    def load(_ledger):
        listened.append("listening on" in capsys.readouterr().out)
        raise OSError(errno.EACCES, "Permission denied")  # its end

    monkeypatch.setattr(Ledger, "load", load)
    assert main(command(tmp_path)) == 2
    assert listened == [True]


_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)
"""Of HTTP/2, with settings that set nothing: who has sent it may be silent for a minute."""


@pytest.mark.slow
def test_idle_strangers_do_not_keep_the_jobs_own_from_it(tmp_path):
    """1,100 connections were more than a process may usually have: nobody got in until they went."""
    few, many = 256, 4096
    # A shell sets it: to run Python between fork and exec aborts where threads of this process are in gRPC.
    limited = ["sh", "-c", f'ulimit -Sn {few}; ulimit -Hn {many}; exec "$@"', "sh"]
    with (
        subprocess.Popen(
            [*limited, sys.executable, "-m", "coordinator", *command(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process,
        ExitStack() as held,
    ):
        held.callback(process.terminate)
        address = process.stdout.readline().decode().removeprefix("listening on ").strip()
        assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (many, many)
        host, _, port = address.rpartition(":")
        for _ in range(few + 50):
            held.enter_context(socket.create_connection((host, int(port)), 20)).sendall(_GREETING)
        with grpc.insecure_channel(address) as channel:
            stub = rpc.CoordinatorStub(showing(channel, TOKEN))
            assert stub.Status(pb.StatusRequest(), timeout=20).job == "j"
