"""Links between the processes of one network namespace: cut, dropped one way, reset."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

NODE = Path(__file__).with_name("node.sh")
_MARK = 10000  # beside a process's number; node.sh
_TOOLS = ("unshare", "ip", "iptables", "setpriv", "ss", "cc", "mkfs.ext4")
_SECONDS = 20.0
_USER = re.compile(r"pid=(\d+)")

Rule = tuple[str, ...]
"""What iptables appends or deletes, without the command."""

ALL: Rule = ()
HALF: Rule = ("-m", "statistic", "--mode", "random", "--probability", "0.5")
"""Of a link's packets, by chance: TCP sends them again, later and later, so that all come, and late."""

Connection = tuple[int, int]
"""Ports of who opened it, and of who listens."""


@dataclass(frozen=True)
class End:
    """One end of a link.

    Attributes:
        pid: of its process; 0: of one that opens no connection to the other end.
        port: that it listens at; 0: none.
    """

    pid: int
    port: int


def refusal() -> str:
    """Say why packets cannot be dropped here; "" where they can."""
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        return f"network faults need {', '.join(missing)}: apt-get install iptables iproute2 util-linux gcc e2fsprogs"
    group, mark = str(_MARK + 1), str(_MARK + 1)
    trial = "ip link set lo up && " + " && ".join(
        f"iptables -w {rule}"
        for rule in (
            f"-A OUTPUT -p tcp --syn -m owner --gid-owner {group} -j CONNMARK --set-mark {mark}",
            f"-A INPUT -p tcp -m connmark --mark {mark} -j DROP",
        )
    )
    tried = subprocess.run(
        [
            "unshare",
            "--net",
            "--pid",
            "--fork",
            "sh",
            "-c",
            f"{trial} && setpriv --regid {group} --clear-groups losetup -f",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS,
    )
    if tried.returncode == 0:
        return ""
    return f"network faults need a network namespace of one's own with iptables, as root: {tried.stderr.strip()}"


def rules(one: End, other: End, way: str, share: Rule = ALL) -> list[Rule]:
    """Return what drops a link's packets on their way in.

    Args:
        one: end of the link.
        other: end of the link.
        way: "out": from `one` to `other`, "in": from `other` to `one`, or "both".
        share: of the packets, `ALL` or `HALF`.
    """
    if way == "both":
        return rules(one, other, "out", share) + rules(one, other, "in", share)
    source, target = (one, other) if way == "out" else (other, one)
    found = []
    if source.pid and target.port:  # the connections that the source opened
        found.append(_rule(source.pid, "--dport", target.port, share))
    if target.pid and source.port:
        found.append(_rule(target.pid, "--sport", source.port, share))
    return found


def _rule(pid: int, side: str, port: int, share: Rule) -> Rule:
    mark = ("-m", "connmark", "--mark", str(_MARK + pid))
    return ("INPUT", "-p", "tcp", side, str(port), *mark, *share, "-j", "DROP")


def peers(one: int, other: int) -> list[tuple[End, End]]:
    """Return the links of two processes that listen at several ports each, by those at which they do now.

    Args:
        one: process.
        other: process.
    """
    links = [(End(one, 0), End(other, port)) for port in _listening(other)]
    return links + [(End(one, port), End(other, 0)) for port in _listening(one)]


def _listening(pid: int) -> list[int]:
    lines = _run("ss", "-Hltnp").splitlines()
    return sorted({int(line.split()[3].rpartition(":")[2]) for line in lines if str(pid) in _USER.findall(line)})


def drop(some: Sequence[Rule]) -> None:
    """Drop these packets from now on."""
    for rule in some:
        _run("iptables", "-w", "-A", *rule)


def lift(some: Sequence[Rule]) -> int:
    """Let these packets through again; returns how many were dropped by rules of these processes."""
    dropped = count_dropped(some)
    for rule in some:
        _run("iptables", "-w", "-D", *rule)
    return dropped


def count_dropped(some: Sequence[Rule]) -> int:
    """How many packets these rules have dropped."""
    told = _run("iptables-save", "-c").splitlines()
    return sum(_packets(line) for line in told for rule in some if _is_rule(line, rule))


def _is_rule(line: str, rule: Rule) -> bool:
    wanted = {rule[3] + " " + rule[4], f"--mark {int(rule[8]):#x}"}
    return " -j DROP" in line and all(f"{part} " in line for part in wanted)


def _packets(line: str) -> int:
    return int(line.removeprefix("[").partition(":")[0])


def connections(one: End, other: End) -> list[Connection]:
    """Every open connection between two processes."""
    return [
        (port, target.port)
        for source, target in ((one, other), (other, one))
        if source.pid and target.port
        for port in _local_ports(source.pid, target.port)
    ]


def reset(some: Sequence[Connection]) -> int:
    """Break connections by RST to both ends; returns how many there were yet."""
    broken = 0
    for port, target in some:
        broken += bool(_run("ss", "-K", "-Htn", f"sport = :{port} and dport = :{target}"))
    return broken


def _local_ports(pid: int, port: int) -> list[int]:
    """Of the connections that a process has to a port."""
    lines = _run("ss", "-Htnp", "state", "established", f"dport = :{port}").splitlines()
    return [local_port(line) for line in lines if str(pid) in _USER.findall(line)]


def local_port(line: str) -> int:
    """Of a line of `ss -Htn state established`: queues, local and remote address, users."""
    return int(line.split()[2].rpartition(":")[2])


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_SECONDS)
    return done.stdout
