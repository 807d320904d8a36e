"""`python -m coordinator` runs one job's coordinator; `elasticrun` starts it, or by hand a person."""

import argparse
import asyncio
import logging
import os
import secrets
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import grpc

from coordinator import options as program_options
from coordinator.core.batches.async_batches import Book
from coordinator.core.checkpoints.ending import anew, restored
from coordinator.core.checkpoints.manifest import CheckpointSearch, Manifest
from coordinator.core.checkpoints.mode_fit import check_mode
from coordinator.core.checkpoints.saving import AFTER_SECONDS
from coordinator.core.job import DurableJob
from coordinator.core.plans.scale_goal import ScaleGoal
from coordinator.core.state import State
from coordinator.server import checkpoint_choice, metrics
from coordinator.server.addresses import join_options, reachable
from coordinator.server.admission import make_server, stop_server
from coordinator.server.journal import JobFolderUnwritable, Journal
from coordinator.server.ledger_files import Ledger, Steps
from coordinator.server.runtime import Runtime
from coordinator.server.service import CoordinatorService
from elastic_ps.control.channels import address_of
from elastic_ps.control.token import read_token
from elastic_ps.core.errors import EXIT_LATER, ConfigurationError, ElasticError, NotNow, StorageError
from elastic_ps.core.model import Model
from elastic_ps.system import storage
from elastic_ps.system.jsonlog import JsonLines
from elastic_ps.system.passing_errors import MAY_PASS
from elastic_ps.system.printable import LogLines, log_to_stderr
from elastic_ps.system.process.file_descriptors import raise_limit
from elastic_ps.system.process.signals import ENDS_COORDINATOR
from protos import elastic_pb2_grpc as rpc

log = logging.getLogger("coordinator")

_GRACE_SECONDS = 1.0
_STORAGE_SECONDS = 10.0
"""Seconds for which a storage that does not answer is asked for the checkpoint to begin from; the launcher waits."""


def main(arguments: list[str] | None = None) -> int:
    """Run until a signal. Returns the exit status: 0, `EXIT_LATER` where it can go on later, 2; 1: a bug."""
    options = program_options.parser(__doc__).parse_args(arguments)
    _log(as_json=options.operator)
    try:
        return asyncio.run(_serve(options))
    except (ElasticError, OSError) as error:
        sys.stderr.write(f"coordinator: {error}\n")
        return EXIT_LATER if _may_pass(error) else 2
    except Exception as error:
        log.exception("the coordinator ends")
        sys.stderr.write(f"coordinator: a bug: {error!r}\n")
        return 1


def _may_pass(error: Exception) -> bool:
    """Return whether something outside the job is the cause, and not the job."""
    return isinstance(error, NotNow | StorageError) or (isinstance(error, OSError) and error.errno in MAY_PASS)


def _log(as_json: bool) -> None:
    log_to_stderr(JsonLines() if as_json else LogLines())


def _load(options: argparse.Namespace, journal: Journal) -> State:
    """Return what the journal holds, else a new job."""
    settings = program_options.settings(options)
    identity = options.identity or storage.new_identity()
    kept = journal.load()
    goal = ScaleGoal(options.workers, options.servers)
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
    job = DurableJob(goal, identity, seed, model=Model(block_bytes=options.block_bytes))
    if not options.restore or options.term > 1:  # a later start: nodes that are there are asked first
        return State(settings, job)
    url, saved = _first(options, job)
    earlier = _last_written(options.checkpoint, job.identity) + AFTER_SECONDS
    since = max(time.time(), saved.written, earlier)  # other machines' clocks may have dated these
    job, book = replace(restored(job, url, saved, term=0), begun=url, since=since), saved.book or Book()
    journal.write(job, book=book)
    return State(settings, job, book=book)


def _first(options: argparse.Namespace, job: DurableJob) -> tuple[str, Manifest]:
    """Return what `--restore` names: that checkpoint, or of a folder the job's own newest one there, else the newest.

    Of its own those go first that its journal knows: it has them in their order, whatever the clocks said.

    Raises:
        CheckpointError, StorageError: there is none, or it cannot be read.
        ConfigurationError: it is of a job of the other mode, and does not fit this one's.
    """

    def search() -> tuple[str, Manifest]:
        folder = "" if storage.is_complete(options.restore) else options.restore
        return checkpoint_choice.find(CheckpointSearch(job.identity, known, folder, "", options.restore, job.damaged))

    named = options.restore.rstrip("/")
    known = tuple(url for url in reversed(job.checkpoints) if url.rpartition("/")[0] == named)
    url, saved = storage.patiently(search, _STORAGE_SECONDS)
    check_mode(url, saved, options.servers == 0)
    log.info("the job starts from %s, version %d", url, saved.version)
    return url, saved


def _last_written(folder: str, identity: str) -> float:
    """Return when earlier runs of an identity last saved, as far as the storage tells: this run begins later."""
    try:
        return storage.patiently(lambda: checkpoint_choice.last_written(folder, identity), _STORAGE_SECONDS)
    except StorageError as error:
        log.warning("nobody knows when earlier runs of this job last saved: %s", error)
        return 0.0


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
    rpc.add_CoordinatorServicer_to_server(CoordinatorService(runtime, ledger, steps), server)
    host = options.advertise or reachable(options.host)
    address = address_of(host, _bind(server, options.host, options.port))
    settings = replace(runtime.state.settings, join_options=join_options(host, address, options.token_file))
    runtime.state = replace(runtime.state, settings=settings)
    runtime.start(options.term)
    await server.start()
    _publish(options.folder / "coordinator.addr", address)
    sys.stdout.write(f"listening on {address}\n")
    sys.stdout.flush()
    loading = asyncio.create_task(_load_ledger(runtime, ledger), name="load-ledger")
    try:
        await _until_ended(runtime, options.launched)
    finally:
        ledger.give_up()
        await loading
        await runtime.close()
        await stop_server(server, _GRACE_SECONDS)


async def _load_ledger(runtime: Runtime, ledger: Ledger) -> None:
    """Read the ledger while the job is decided about: a long one may take a while."""
    try:
        await asyncio.to_thread(ledger.load)
        if ledger.loaded and not runtime.state.job.ended:
            ledger.settle()
    except (OSError, JobFolderUnwritable) as error:
        runtime.fail(error)


def _bind(server: "grpc.aio.Server", host: str, port: int) -> int:
    address = address_of(host, port)
    try:
        return int(server.add_insecure_port(address))
    except RuntimeError as error:
        raise NotNow(f"cannot listen on {address}: {error}") from error


def _publish(path: Path, address: str) -> None:
    """Write the address to a file, so that readers see the old one or the new one, never half of it."""
    part = path.with_suffix(".part")
    part.write_text(f"{address}\n")
    os.replace(part, path)


async def _until_ended(runtime: Runtime, launched: bool) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if launched else [])):
        loop.add_signal_handler(number, _leave_to_launcher if launched else ended.set)
    if launched:
        loop.add_signal_handler(ENDS_COORDINATOR, ended.set)
    runtime.failed.add_done_callback(lambda _failed: ended.set())
    await ended.wait()
    if runtime.failed.done():
        runtime.failed.result()


def _leave_to_launcher() -> None:
    log.warning("a signal to end: left to elasticrun, which ends its coordinator when the nodes have ended")


if __name__ == "__main__":
    sys.exit(main())
