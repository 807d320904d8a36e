"""A coordinator that comes back to a job that has trained for very long: when it answers, and when it knows its ledger.

    python -m benchmarks.coordinator_restart [--entries N]

The folder holds a journal with a thousand ended plans and a ledger of ten million entries. A case is a start of `python
-m coordinator` in it: with the marks that a coordinator leaves in its ledger, and without any (they were written by an
older version, or the disk has lost them), when all of it has to be read beside the job. `ready` is from the start of
the process to its first answer; `busiest` the longest answer to a Status while the ledger is read, and `kept` the time
from the start until an entry of a server is stored.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.support.report import BenchmarkGoal, as_program, finish, under
from coordinator.core.job import DurableJob, RegisteredNode
from coordinator.core.plans.plan import Phase, Plan, PlanKind, Times
from coordinator.core.plans.scale_goal import ScaleGoal
from coordinator.server.journal import Journal
from coordinator.server.ledger_files import MARK_BYTES
from elastic_ps.control.channels import coordinator_channel
from elastic_ps.core.configuration import Member, Role
from protos import elastic_pb2 as pb
from protos import elastic_pb2_grpc as rpc

ENTRIES = 10_000_000
SERVERS = 4
WORKERS = 8
PLANS = 1000
READY_SECONDS = 5.0
MOST_BYTES = 300 << 20
_PATIENCE = 900.0
_TOKEN = bytes(range(16))


def main() -> int:
    """Measure both cases and write build/bench/coordinator_restart.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=ENTRIES, help="of the ledger (%(default)s)")
    entries = parser.parse_args().entries
    rows = []
    for marked in (True, False):
        with tempfile.TemporaryDirectory(prefix="coordinator-restart-") as folder:
            rows.append(_measure(Path(folder), entries, marked))
    return finish("coordinator_restart", rows, _goals(rows, entries))


def _goals(rows: list[dict[str, Any]], entries: int) -> list[BenchmarkGoal]:
    memory = max(row["MB"] for row in rows)
    return [
        *(under(f"ready, {entries:,} entries, {row['ledger']}", READY_SECONDS, row["ready s"], "s") for row in rows),
        under(f"an entry is stored again, {rows[0]['ledger']}", READY_SECONDS, rows[0]["kept s"], "s"),
        under("memory of the coordinator", MOST_BYTES / 1e6, memory, "MB"),
    ]


def _measure(folder: Path, entries: int, marked: bool) -> dict[str, Any]:
    (folder / "token").write_text(_TOKEN.hex())
    _write_journal(folder)
    size = _write_ledger(folder / "ledger.jsonl", entries, marked)
    began = time.monotonic()
    with _coordinator(folder) as (process, stub):
        ready, busiest, stored = time.monotonic() - began, 0.0, False
        while not stored:
            asked = time.monotonic()
            stub.Status(pb.StatusRequest(), timeout=_PATIENCE)
            busiest = max(busiest, time.monotonic() - asked)
            stored = _stored(stub, entries)
            assert asked - began < _PATIENCE, "the ledger is not read in time"
        kept = time.monotonic() - began
        memory = _peak_bytes(process.pid) / 1e6
    return {
        "ledger": "marked" if marked else "without marks",
        "entries": entries,
        "GB": size / 1e9,
        "ready s": ready,
        "busiest s": busiest,
        "kept s": kept,
        "MB": memory,
    }


def _write_journal(folder: Path) -> None:
    """Write the journal of a job that knows its servers, with plans that have ended."""
    nodes = {
        f"s{n}": RegisteredNode(Member(f"s{n}", Role.SERVER, "127.0.0.1", 1 + n), 0, f"server-{n}")
        for n in range(SERVERS)
    }
    plans = [
        Plan(n, PlanKind.SCALE, "operator", 1.0, phase=Phase.COMMITTED, times=Times(1.0, 2.0, 3.0))
        for n in range(PLANS)
    ]
    journal = Journal(folder / "journal.sqlite")
    journal.write(DurableJob(ScaleGoal(WORKERS, SERVERS), term=1, nodes=nodes), plans)
    journal.close()


def _write_ledger(path: Path, entries: int, marked: bool) -> int:
    """Write entries as SERVERS servers of a sync job leave them; return the bytes."""
    slices = json.dumps([[f"w{n}", n * 16, n * 16 + 16] for n in range(WORKERS)], separators=(",", ":"))
    rest = f'"runs":[0,2,4,2,9,1],"epoch":0,"step":0,"exchange":0,"slices":{slices}'
    form = f'{{"server":"s%d","sequence":%d,"term":1,"number":1,"version":%d,{rest}}}\n'
    unmarked = size = 0
    with path.open("w") as file:
        for first in range(0, entries, 1000):
            numbers = range(first, min(first + 1000, entries))
            text = "".join(form % (n % SERVERS, n // SERVERS, n // SERVERS) for n in numbers)
            unmarked += len(text)
            if marked and unmarked >= MARK_BYTES:
                kept = {f"s{n}": (numbers[-1] - n) // SERVERS + 1 for n in range(SERVERS)}
                text += json.dumps({"kept": kept}, separators=(",", ":")) + "\n"
                unmarked = 0
            size += file.write(text)
    return size


@contextmanager
def _coordinator(folder: Path) -> "Iterator[tuple[subprocess.Popen[bytes], rpc.CoordinatorStub]]":
    """Run a coordinator; yield its process once it has answered."""
    command = [sys.executable, "-m", "coordinator", "--job", "long", "--folder", str(folder)]
    with subprocess.Popen(
        [*command, "--token-file", str(folder / "token")], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        try:
            address = process.stdout.readline().decode().removeprefix("listening on ").strip()
            with closing(coordinator_channel(address, _TOKEN)) as channel:
                stub = rpc.CoordinatorStub(channel)
                stub.Status(pb.StatusRequest(), timeout=_PATIENCE)
                yield process, stub
        finally:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)


def _stored(stub: rpc.CoordinatorStub, entries: int) -> bool:
    """Return whether the coordinator takes the next entry of the first server."""
    first = (entries + SERVERS - 1) // SERVERS
    entry = pb.LedgerEntry(term=1, number=1, version=first, runs=[0, 2])
    request = pb.ReportRequest(caller=pb.Caller(node="s0"), ledger=[entry], ledger_sequence=first)
    reply = stub.Report(request, timeout=_PATIENCE)
    return bool(reply.ledger_kept == first + 1)


def _peak_bytes(pid: int) -> int:
    """Return the most memory that a process has had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))


if __name__ == "__main__":
    as_program(main)
