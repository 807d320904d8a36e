"""`python -m coordinator`: one job's coordinator. Started by `elasticrun`, or by hand for a job across machines."""

import argparse
import asyncio
import errno
import logging
import os
import secrets
import signal
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc

from coordinator.core.batches.book_of_batches import Book
from coordinator.core.checkpoints.ending import anew, restored
from coordinator.core.plans.plan import Migration
from coordinator.core.plans.scale_requests import Goal
from coordinator.core.state import Job, Settings, State
from coordinator.server import checkpoint_storage, metrics
from coordinator.server.addresses import reachable
from coordinator.server.admission import make_server
from coordinator.server.journal import Journal
from coordinator.server.ledger_files import Ledger, Steps
from coordinator.server.runtime import Runtime
from coordinator.server.service import Service
from elastic_ps.control.token import read_token
from elastic_ps.core.configuration import MOST_NODES
from elastic_ps.core.data_order import MOST_SEED
from elastic_ps.core.errors import EXIT_LATER, ConfigurationError, ElasticError, NotNow, StorageError
from elastic_ps.core.model import DEFAULT_BLOCK_BYTES, Model
from elastic_ps.system import storage
from elastic_ps.system.file_descriptors import raise_limit
from elastic_ps.system.jsonlog import JsonLines
from elastic_ps.system.printable import LogLines, log_to_stderr
from protos import elastic_pb2_grpc as rpc

log = logging.getLogger("coordinator")

_GRACE_SECONDS = 1.0
_PASSING = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ESTALE)
_STORAGE_SECONDS = 10.0
"""That a storage which does not answer is asked for the checkpoint to begin from; the launcher waits."""


def main(arguments: list[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT. Returns the exit status: 0, `EXIT_LATER` where it can go on later, or 2."""
    options = _parser().parse_args(arguments)
    _log(as_json=options.operator)
    try:
        return asyncio.run(_serve(options))
    except (ElasticError, OSError) as error:
        sys.stderr.write(f"coordinator: {error}\n")
        return EXIT_LATER if _may_pass(error) else 2


def _may_pass(error: Exception) -> bool:
    """Return whether something outside the job is the cause, and not the job."""
    return isinstance(error, NotNow | StorageError) or (isinstance(error, OSError) and error.errno in _PASSING)


def _log(as_json: bool) -> None:
    log_to_stderr(JsonLines() if as_json else LogLines())


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
    mine = "of this training run: checkpoints have it, and only its own are loaded or dropped"
    add("--identity", type=_identity, metavar="TEXT", help=f"{mine} (that of the journal, else random)")
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


def _identity(text: str) -> str:
    if not storage.IDENTITY.fullmatch(text):
        raise argparse.ArgumentTypeError("must be up to 100 letters, digits, '.', '_' and '-', a letter or digit first")
    return text


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
    identity = options.identity or storage.new_identity()
    kept = journal.load()
    goal = Goal(options.workers, options.servers)
    if kept is not None:
        job, plans, book = kept
        job = replace(job, identity=job.identity or identity)  # a journal of before jobs had one
        if options.begin_again and job.term < options.term:  # else this is the pod's next start
            found = _first(options, job) if options.restore else None
            job, book = anew(job, goal, options.term, found), (found[1].book if found else None) or Book()
            journal.write(job, book=book)
            return State(settings, job, plans, book)
        log.info("job %s resumes from its journal, after term %d", options.job, job.term)
        return State(settings, job, plans, book)
    seed = options.seed if options.seed is not None else secrets.randbits(32)
    job = Job(goal, identity, seed, model=Model(block_bytes=options.block_bytes))
    if not options.restore or options.term > 1:  # a later start: nodes that are there are asked first
        return State(settings, job)
    url, saved = _first(options, job)
    job, book = replace(restored(job, url, saved, term=0), begun=url), saved.book or Book()
    journal.write(job, book=book)
    return State(settings, job, book=book)


def _first(options: argparse.Namespace, job: Job) -> tuple[str, checkpoint_storage.Manifest]:
    """Return what `--restore` names: that checkpoint, or of a folder the job's own newest one, else the newest.

    Raises:
        CheckpointError, StorageError: there is none, or it cannot be read.
    """

    def search() -> tuple[str, dict[str, Any]]:
        folder = "" if storage.is_complete(options.restore) else options.checkpoint
        return checkpoint_storage.find(
            checkpoint_storage.Search(job.identity, (), folder, "", options.restore, job.damaged)
        )

    url, value = storage.patiently(search, _STORAGE_SECONDS)
    saved = checkpoint_storage.Manifest.from_json(value)
    log.info("the job starts from %s, version %d", url, saved.version)
    return url, saved


async def _serve(options: argparse.Namespace) -> int:
    _check_storage(options.checkpoint)
    options.folder.mkdir(parents=True, exist_ok=True)
    token = read_token(options.token_file)
    with (
        closing(Journal(options.folder / "journal.sqlite")) as journal,
        closing(Ledger(options.folder / "ledger.jsonl")) as ledger,
        closing(Steps(options.folder / "steps.jsonl")) as steps,
    ):
        runtime = Runtime(_load(options, journal), journal)
        with _metrics(options, runtime):
            await _run(options, token, runtime, ledger, steps)
    return 0


def _check_storage(url: str) -> None:
    """Refuse a folder for checkpoints that nothing here can write to: nobody would notice before one is needed."""
    try:
        storage.check_protocol(url)
    except (ValueError, ImportError) as error:
        raise ConfigurationError(f"checkpoints cannot lie at {url}: {error}") from error


@contextmanager
def _metrics(options: argparse.Namespace, runtime: Runtime) -> Iterator[None]:
    if options.metrics is None:
        yield
        return
    with metrics.served(lambda: runtime.state, runtime.now, options.host, options.metrics) as port:
        log.info("metrics at port %d, /metrics", port)
        yield


async def _run(options: argparse.Namespace, token: bytes, runtime: Runtime, ledger: Ledger, steps: Steps) -> None:
    raise_limit()
    server = make_server(token)
    rpc.add_CoordinatorServicer_to_server(Service(runtime, ledger, steps), server)
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
    loading = asyncio.create_task(_load_ledger(runtime, ledger), name="load-ledger")
    try:
        await _until_ended(runtime)
    finally:
        ledger.give_up()
        await loading
        await runtime.close()
        await server.stop(_GRACE_SECONDS)


async def _load_ledger(runtime: Runtime, ledger: Ledger) -> None:
    """Read the ledger while the job is decided about: a long one may take a while."""
    try:
        await asyncio.to_thread(ledger.load)
    except OSError as error:
        runtime.fail(error)


def _bind(server: "grpc.aio.Server", host: str, port: int) -> int:
    try:
        return int(server.add_insecure_port(f"{host}:{port}"))
    except RuntimeError as error:
        raise NotNow(f"cannot listen on {host}:{port}: {error}") from error


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
