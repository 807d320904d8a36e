"""`python -m coordinator`: one job's coordinator. Started by `elasticrun`, or by hand for a job across machines."""

import argparse
import asyncio
import logging
import os
import secrets
import signal
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import grpc

from coordinator import checkpoints, metrics
from coordinator.addresses import reachable
from coordinator.admission import make_server
from coordinator.batches import Book
from coordinator.books import Ledger, Steps
from coordinator.ending import anew, restored
from coordinator.journal import Journal
from coordinator.plan import Migration
from coordinator.runtime import Runtime
from coordinator.service import Service
from coordinator.state import Job, Settings, State
from coordinator.wishes import Goal
from elastic_ps.core.configuration import MOST_NODES
from elastic_ps.core.data import MOST_SEED
from elastic_ps.core.errors import ElasticError
from elastic_ps.core.jsonlog import JsonLines
from elastic_ps.core.model import DEFAULT_BLOCK_BYTES, Model
from elastic_ps.core.token import read_token
from protos import elastic_pb2_grpc as rpc

log = logging.getLogger("coordinator")

_GRACE_SECONDS = 1.0


def main(arguments: list[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT. Returns the exit status: 0, or 2 where it cannot start."""
    options = _parser().parse_args(arguments)
    _log(as_json=options.operator)
    try:
        return asyncio.run(_serve(options))
    except (ElasticError, OSError) as error:
        sys.stderr.write(f"coordinator: {error}\n")
        return 2


def _log(as_json: bool) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if as_json else logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m coordinator", description=__doc__)
    add = parser.add_argument
    add("--job", required=True, help="name of the job")
    add("--folder", required=True, type=Path, help="of the job: journal, ledger, address")
    add("--token-file", required=True, help="file that holds the job token as 32 hex digits")
    add("--host", default="127.0.0.1", help="address to listen on; 0.0.0.0: all of this machine (%(default)s)")
    add("--advertise", default="", metavar="HOST", help="name or address that others reach it by (that of --host)")
    add("--port", type=int, default=0, help="to listen on; 0: a free one (%(default)s)")
    add("--workers", type=_count, default=1, help="that the job starts with (%(default)s)")
    add("--servers", type=_count, default=1, help="that the job starts with (%(default)s)")
    add("--block-bytes", type=_positive, default=DEFAULT_BLOCK_BYTES, help="largest block (%(default)s)")
    add("--seed", type=_seed, help="of the data order (random)")
    add("--join-timeout", type=_seconds, default=60.0, help="that a plan waits for joining nodes (%(default)s s)")
    add("--lease", type=_seconds, default=10.0, help="that a node may be silent (%(default)s s)")
    add("--migration", type=Migration, choices=list(Migration), default=Migration.LIVE, help="(%(default)s)")
    add("--checkpoint", default="", metavar="URL", help="folder of the job's checkpoints, any fsspec URL")
    add("--checkpoint-interval", type=float, default=0.0, metavar="S", help="0: on demand only (%(default)s)")
    add("--restore", default="", metavar="URL", help="start from this checkpoint, or from the newest in this folder")
    add("--metrics", type=int, metavar="PORT", help="answer Prometheus there; 0: a free port (no metrics)")
    lost = "above 1 without a journal, the state is put together from the job's nodes"
    add("--term", type=_positive, default=1, metavar="N", help=f"of this start, at least; {lost} (%(default)s)")
    add(
        "--begin-again",
        action="store_true",
        help="nobody of an earlier term is left: what a journal has of one gives way to --restore; its ledger goes on",
    )
    add(
        "--operator",
        action="store_true",
        help="a Kubernetes operator runs the job: counts, drains, its end are its own; the log is JSON lines",
    )
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {value}")
    return value


def _count(text: str) -> int:
    value = _positive(text)
    if value > MOST_NODES:
        raise argparse.ArgumentTypeError(f"must be at most {MOST_NODES}, not {value}")
    return value


def _seed(text: str) -> int:
    value = int(text)
    if not 0 <= value <= MOST_SEED:
        raise argparse.ArgumentTypeError(f"must be from 0 to {MOST_SEED}, not {value}")
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"must be more than 0 seconds, not {text}")
    return value


def _load(options: argparse.Namespace, journal: Journal) -> State:
    """What the journal holds, else a new job."""
    settings = Settings(
        name=options.job,
        lease=options.lease,
        join_timeout=options.join_timeout,
        migration=options.migration,
        checkpoint=options.checkpoint,
        restore=options.restore,
        checkpoint_interval=options.checkpoint_interval,
        operator=options.operator,
    )
    kept = journal.load()
    goal = Goal(options.workers, options.servers)
    if kept is not None:
        job, plans, _ = kept
        if options.begin_again and job.term < options.term:  # else this is the pod's next start
            found = _newest(options.restore, job.damaged) if options.restore else None
            job, book = anew(job, goal, options.term, found), (found[1].book if found else None) or Book()
            journal.write(job, book=book)
            return State(settings, job, plans, book)
        log.info("job %s resumes from its journal, after term %d", options.job, job.term)
        return State(settings, *kept)
    seed = options.seed if options.seed is not None else secrets.randbits(32)
    job = Job(goal, seed=seed, model=Model(block_bytes=options.block_bytes))
    if not options.restore or options.term > 1:  # a later start: nodes that are there are asked first
        return State(settings, job)
    url, saved = _newest(options.restore)
    job, book = restored(job, url, saved, term=0), saved.book or Book()
    journal.write(job, book=book)
    return State(settings, job, book=book)


def _newest(root: str, damaged: frozenset[str] = frozenset()) -> tuple[str, checkpoints.Manifest]:
    url, value = checkpoints.newest(root, damaged=damaged)
    saved = checkpoints.Manifest.from_json(value)
    log.info("the job starts from %s, version %d", url, saved.version)
    return url, saved


async def _serve(options: argparse.Namespace) -> int:
    options.folder.mkdir(parents=True, exist_ok=True)
    token = read_token(options.token_file)
    with (
        closing(Journal(options.folder / "journal.sqlite")) as journal,
        closing(Ledger(options.folder / "ledger.jsonl")) as ledger,
        closing(Steps(options.folder / "steps.jsonl")) as steps,
    ):
        runtime = Runtime(_load(options, journal), journal)
        with _metrics(options, runtime):
            await _run(options, token, runtime, Service(runtime, ledger, steps))
    return 0


@contextmanager
def _metrics(options: argparse.Namespace, runtime: Runtime) -> Iterator[None]:
    if options.metrics is None:
        yield
        return
    with metrics.served(lambda: runtime.state, runtime.now, options.host, options.metrics) as port:
        log.info("metrics at port %d, /metrics", port)
        yield


async def _run(options: argparse.Namespace, token: bytes, runtime: Runtime, service: Service) -> None:
    server = make_server(token)
    rpc.add_CoordinatorServicer_to_server(service, server)
    host = options.advertise or reachable(options.host)
    address = f"{host}:{_bind(server, options.host, options.port)}"
    here = f"--coordinator {address} --token-file {options.token_file}"
    settings = replace(runtime.state.settings, join_command=f"elasticrun --role {{role}} {here}")
    runtime.state = replace(runtime.state, settings=settings)
    runtime.start(options.term)
    await server.start()
    _publish(options.folder / "coordinator.addr", address)
    sys.stdout.write(f"listening on {address}\n")
    sys.stdout.flush()
    try:
        await _until_ended(runtime)
    finally:
        await runtime.close()
        await server.stop(_GRACE_SECONDS)


def _bind(server: "grpc.aio.Server", host: str, port: int) -> int:
    try:
        return int(server.add_insecure_port(f"{host}:{port}"))
    except RuntimeError as error:
        raise OSError(f"cannot listen on {host}:{port}: {error}") from error


def _publish(path: Path, address: str) -> None:
    """Readers see the old address or the new one, never half of it."""
    part = path.with_suffix(".part")
    part.write_text(f"{address}\n")
    os.replace(part, path)


async def _until_ended(runtime: Runtime) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    runtime.failed.add_done_callback(lambda _failed: ended.set())
    await ended.wait()
    if runtime.failed.done():
        runtime.failed.result()


if __name__ == "__main__":
    sys.exit(main())
