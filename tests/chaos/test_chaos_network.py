"""A link's rules: which packets are dropped, and how they are counted."""

import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from tests.chaos import network
from tests.chaos.disturbed import is_alive
from tests.chaos.network import End, rules
from tests.chaos.room import inside

WORKER, SERVER, OTHER = End(12, 0), End(20, 5001), End(21, 5002)


def said(rule):
    """Side, port, mark."""
    return rule[3], int(rule[4]), int(rule[8])


def test_a_worker_alone_connects():
    assert [said(rule) for rule in rules(WORKER, SERVER, "out")] == [("--dport", 5001, 10012)]
    assert [said(rule) for rule in rules(WORKER, SERVER, "in")] == [("--sport", 5001, 10012)]


def test_either_server_may_have_connected():
    from_server = [("--dport", 5002, 10020), ("--sport", 5001, 10021)]
    assert [said(rule) for rule in rules(SERVER, OTHER, "out")] == from_server
    to_server = [("--dport", 5001, 10021), ("--sport", 5002, 10020)]
    assert [said(rule) for rule in rules(SERVER, OTHER, "in")] == to_server
    assert [said(rule) for rule in rules(SERVER, OTHER, "both")] == from_server + to_server


def test_packets_of_a_rule_are_counted(monkeypatch):
    told = "\n".join(
        [
            "*filter",
            ":INPUT ACCEPT [900:1000]",
            "[0:0] -A OUTPUT -p tcp -m owner --gid-owner 10012 -j CONNMARK --set-xmark 0x271c/0xffffffff",
            "[7:420] -A INPUT -p tcp -m tcp --dport 5001 -m connmark --mark 0x271c -j DROP",
            "[5:300] -A INPUT -p tcp -m tcp --dport 50010 -m connmark --mark 0x271c -j DROP",
            "[3:300] -A INPUT -p tcp -m tcp --dport 5001 -m connmark --mark 0x271d -j DROP",
        ]
    )
    monkeypatch.setattr(network, "_run", lambda *command: told)
    assert network.count_dropped(rules(WORKER, SERVER, "out")) == 7


def test_the_port_of_a_connection():
    line = '0      0      127.0.0.1:43210      127.0.0.1:5001 users:(("python",pid=12,fd=9))'
    assert network.local_port(line) == 43210


ROOM = not network.refusal()
LAUNCHER = f"""
import subprocess
from tests.chaos.room import inside
command = "setsid sleep 600 & wait" if {ROOM} else "exec sleep 600"
subprocess.Popen(inside(["sh", "-c", command], {ROOM})).wait()
"""


def test_what_runs_in_a_room_ends_with_who_opened_it():
    """Also what has left its process group, where rooms can be had: the kernel ends a namespace with its first."""
    with subprocess.Popen([sys.executable, "-c", LAUNCHER]) as launcher:
        try:
            (sleeper,) = until(lambda: sleepers(launcher.pid), "a process in the room")
        finally:
            launcher.kill()
    until(lambda: not is_alive(sleeper), "its end")


def until(look, what):
    deadline = time.monotonic() + 20
    while not (found := look()):
        assert time.monotonic() < deadline, f"{what}: did not come"
        time.sleep(0.01)
    return found


def sleepers(pid):
    return [each for each in descendants(pid) if command_line(each).startswith(b"sleep")]


def command_line(pid):
    with suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def descendants(pid):
    try:
        found = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []
    return found + [each for child in found for each in descendants(child)]


def test_without_rooms_a_command_is_still_run():
    assert subprocess.run(inside(["true"], network=False), check=False).returncode == 0
