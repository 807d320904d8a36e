"""The seam between production and the world: production's modules get other things by the names that they use.

Production takes threads, clocks, connections and files from modules that it names (`threading.Condition`,
`time.monotonic`, `grpc.insecure_channel`). While a world runs these names lead to the world's own. Production does not
know of it, and pays nothing for it.
"""

import asyncio
import os
import queue
import secrets
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any

import grpc

import coordinator.__main__
import coordinator.options as program_options
import elastic_ps.server.__main__
from coordinator.server import admission, bounded_streams, journal, json_lines, runtime
from elastic_ps.control import channels
from elastic_ps.data import sampler
from elastic_ps.launch import coordinator_process, job_agent
from elastic_ps.launch.processes import children
from elastic_ps.node import node_memory, session
from elastic_ps.server import service
from elastic_ps.server.copying import shadows
from elastic_ps.system import storage, strangers
from elastic_ps.system.process import signals
from elastic_ps.torch.allreduce import exchange, group, peer_probe
from elastic_ps.torch.allreduce.following import shadow_feed
from elastic_ps.transport import choice, send_queue, shared_memory
from elastic_ps.transport.frame_kinds import Kind
from elastic_ps.worker.script import process_ending, script_job
from tests.world.kernel import clocks, loop, threads
from tests.world.kernel.memory import Memory
from tests.world.kernel.threads import here
from tests.world.network import gloo

_REPLACED = {threading: threads.threading, queue: threads.queue, time: clocks.time}
_PRODUCTION = ("elastic_ps.", "coordinator.")
_COMPUTES = "elastic_ps.native."
"""Its loops run in real threads: who waits for these lets no other task run, and waits for nothing else."""


def overlay(module: Any, **names: Any) -> SimpleNamespace:
    """Return a module with some of its names leading elsewhere."""
    return SimpleNamespace(**{**vars(module), **names})


class _Numbered:
    """Objects that are put into sets are numbered: the order of a set must not depend on where they lie in memory."""

    numbers = count()

    @staticmethod
    def hash(instance: Any) -> int:
        known = getattr(instance, "_number_in_world", None)
        if known is None:
            known = instance._number_in_world = next(_Numbered.numbers)
        return known  # type: ignore[no-any-return]


class _Stream:
    """A process's standard output, or its errors."""

    def write(self, text: str) -> None:
        if text.strip():
            here.scheduler.current.process.said(text.encode())

    def flush(self) -> None:
        """Nothing waits."""


class _Ending:
    """See `ScriptEnding`: a process of the world knows how its script has ended."""

    def __init__(self) -> None:
        self._process = here.scheduler.current.process

    @property
    def failed(self) -> bool:
        return self._process.failed  # type: ignore[no-any-return]


def _process() -> Any:
    return here.scheduler.current.process


def _set_handler(number: int, handler: Any) -> None:
    _process().handlers[number] = handler


def _job() -> Any:
    process = _process()
    if process.job is None:
        process.job = process.make_job()
        process.job.start()
    return process.job


def _arguments() -> Any:
    before, sys.argv = sys.argv, ["server", *_process().arguments]
    try:
        return _PARSE()
    finally:
        sys.argv = before


_SETTINGS = program_options.settings
_PARSE = elastic_ps.server.__main__._arguments


def _opener(disk: Any) -> Any:
    def opened(book: Any, path: Any) -> None:
        _OPEN(book, path)
        book._file = disk.open_lines(book._file)

    return opened


def _linked(link: Any, *arguments: Any, **named: Any) -> None:
    _LINK(link, *arguments, **named)
    process = _process()
    process.links = [other for other in process.links if not other.closed] + [link]


def _serving(copies: Any) -> Any:
    def made(server: Any, *arguments: Any, **named: Any) -> None:
        _SERVER(server, *arguments, **named)
        _process().server = server.state
        copies.began(_process())

    return made


def _queued(copies: Any) -> Any:
    def enqueue(link: Any, frame: Any, *arguments: Any, **named: Any) -> None:
        if not link.closed and frame.kind in _WATCHED:
            copies.queued(_process(), link, frame)
        _ENQUEUE(link, frame, *arguments, **named)

    return enqueue


_SERVER = service.ServerNode.__init__
_ENQUEUE = send_queue.Link.enqueue
_WATCHED = frozenset({Kind.VALUE, Kind.SNAPSHOT, Kind.HANDOVER, Kind.FOLLOWED})
_LINK = send_queue.Link.__init__
_BACKLOG_BYTES = 2048
"""Of a joiner: jobs are small here, and are to come to their bounds."""

_BUCKET_BYTES = 64
"""Of a sum, likewise: a job's gradients are some of them."""

_PORTION_BYTES = 256
"""Of a snapshot, likewise: a tensor with its states."""

_OPEN = json_lines.JsonLinesFile.__init__


def _names(world: Any) -> Iterator[tuple[Any, str, Any]]:
    """Yield which name of which module or class leads where."""
    for name, module in list(sys.modules.items()):
        if name.startswith(_PRODUCTION) and not name.startswith(_COMPUTES):
            for real, other in _REPLACED.items():
                if vars(module).get(real.__name__) is real:
                    yield module, real.__name__, other
            if vars(module).get("secrets") is secrets:
                yield module, "secrets", world.secrets
    own_signals = overlay(signal, signal=_set_handler, getsignal=lambda n: _process().handlers.get(n, signal.SIG_DFL))
    streams = overlay(sys, stdout=_Stream(), stderr=_Stream())
    yield session, "os", overlay(os, getpid=lambda: _process().number)
    yield node_memory, "os", overlay(os, getpid=lambda: _process().number)
    yield json_lines, "os", overlay(os, fsync=world.disk.fsync)
    yield json_lines.JsonLinesFile, "__init__", _opener(world.disk)
    if not world.draw.hosts:
        memory = Memory()
        for name in "os", "fcntl", "mmap":
            yield shared_memory, name, getattr(memory, name)
    yield storage, "fsspec", world.disk.storage.module()
    yield journal, "sqlite3", overlay(sqlite3, connect=world.disk.connect)
    yield channels, "grpc", overlay(grpc, insecure_channel=world.make_channel)
    yield admission, "grpc", overlay(grpc, aio=overlay(grpc.aio, server=world.make_server))
    yield runtime, "step", world.step
    yield coordinator.__main__, "asyncio", overlay(asyncio, run=loop.run)
    yield coordinator.__main__, "sys", streams
    yield program_options, "settings", lambda given: replace(_SETTINGS(given), replicas=world.draw.replicas)
    for program in coordinator.__main__, elastic_ps.server.__main__:
        yield program, "raise_limit", lambda: None
    yield coordinator.__main__, "_log", lambda as_json: None
    yield elastic_ps.server.__main__, "log_to_stderr", lambda lines: None
    yield elastic_ps.server.__main__, "_arguments", _arguments
    yield elastic_ps.server.__main__, "signal", own_signals
    yield process_ending, "signal", own_signals
    yield signals, "signal", own_signals
    yield process_ending, "sys", streams
    yield script_job, "ScriptEnding", _Ending
    yield script_job, "atexit", SimpleNamespace(register=lambda act: _process().leaving.append(act))
    yield sampler, "script_job", _job
    yield choice, "TRANSPORTS", dict.fromkeys(choice.TransportName, world.make_transport)
    yield strangers.CountedLog.__init__, "__defaults__", (clocks.time.monotonic,)
    yield signals.SignalCount.__init__, "__defaults__", (signals.SAME_SECONDS, clocks.time.monotonic)
    for module in children, coordinator_process:
        yield module, "ChildProcess", world.start_child
    for module in children, coordinator_process, job_agent:
        yield module, "NodeLog", world.make_log
    if world.draw.serverless:
        for name in "dist", "_untyped":
            yield group, name, gloo.distributed(world)
        yield group, "address_of", lambda host: (None, host)  # the world's machines have names alone
        yield exchange, "BUCKET_BYTES", _BUCKET_BYTES
        yield shadow_feed, "PORTION_BYTES", _PORTION_BYTES
        yield peer_probe, "socket", SimpleNamespace(create_connection=world.network.dial)
    yield send_queue.Link, "__init__", _linked
    yield shadows, "BACKLOG_BYTES", _BACKLOG_BYTES
    yield service.ServerNode, "__init__", _serving(world.copies)
    if world.draw.replicas:
        yield send_queue.Link, "enqueue", _queued(world.copies)
    for kind in send_queue.Link, bounded_streams.BoundedStream, shared_memory.Image:
        yield kind, "__hash__", _Numbered.hash


@contextmanager
def entered(world: Any) -> Iterator[None]:
    """Let production run in a world while the block does."""
    found = list(_names(world))
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in found]
    _Numbered.numbers = count()
    here.scheduler = world.scheduler
    for owner, name, other in found:
        setattr(owner, name, other)
    try:
        yield
    finally:
        for owner, name, real in reversed(before):
            setattr(owner, name, real)
        here.scheduler = None
