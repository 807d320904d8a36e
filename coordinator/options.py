"""This module declares the options of `python -m coordinator`: each once, with its check and its default.

An option that has the name of one of `CoordinatorSettings`' fields is that field's value. The launcher passes on what
it has by the same names (`elastic_ps.launch.options`).
"""

import argparse
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

from coordinator.core.plans.plan import MigrationMode
from coordinator.core.state import CoordinatorSettings
from elastic_ps.core.configuration import MOST_NODES, MOST_REPLICAS
from elastic_ps.core.data_order import MOST_SEED
from elastic_ps.core.model import DEFAULT_BLOCK_BYTES
from elastic_ps.system import storage

_MOST_SECONDS = 30 * 86_400.0
"""Thirty days, as for `elasticrun`: no job waits longer for anything, and a clock can still count so many seconds."""


def settings(options: argparse.Namespace) -> CoordinatorSettings:
    """Return what the core needs of the options."""
    given = vars(options)
    named = {field.name: given[field.name] for field in fields(CoordinatorSettings) if field.name in given}
    return CoordinatorSettings(name=options.job, **named)


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="python -m coordinator", description=description)
    add = parser.add_argument
    add("--job", required=True, help="name of the job")
    add("--folder", required=True, type=Path, help="folder of the job, for its journal, its ledger and its address")
    add("--token-file", required=True, help="file that holds the job token as 32 hex digits")
    add("--host", default="127.0.0.1", help="address to listen on; 0.0.0.0: all of this machine (%(default)s)")
    add("--advertise", default="", metavar="HOST", help="name or address that others reach it by (that of --host)")
    add("--port", type=_integer, default=0, help="port to listen on; 0: a free one (%(default)s)")
    _add_counts(add)
    add("--seed", type=_seed, help="seed of the data order (random)")
    joining = "seconds that a plan waits for joining nodes (%(default)s)"
    add("--join-timeout", type=_seconds, default=CoordinatorSettings.join_timeout, help=joining)
    silent = "seconds that a node may be silent (%(default)s)"
    add("--lease", type=_seconds, default=CoordinatorSettings.lease, help=silent)
    modes, moving = list(MigrationMode), "how blocks move to other servers (%(default)s)"
    add("--migration", type=MigrationMode, choices=modes, default=CoordinatorSettings.migration, help=moving)
    _add_checkpoints(add)
    add("--metrics", type=_integer, metavar="PORT", help="port to answer Prometheus at; 0: a free one (no metrics)")
    _add_life(add)
    return parser


def _add_counts(add: Callable[..., object]) -> None:
    """Add how many nodes the job has, and how its parameters are divided among servers."""
    add("--workers", type=_count, default=1, help="workers that the job starts with (%(default)s)")
    servers = "servers that the job starts with; 0: it never has any, its workers all-reduce (%(default)s)"
    add("--servers", type=_servers, default=1, help=servers)
    copies = "servers that keep a copy of each block: with 1 any server may die and nothing is lost (%(default)s)"
    add("--replicas", type=_replicas, default=CoordinatorSettings.replicas, metavar="0|1", help=copies)
    add("--block-bytes", type=_positive, default=DEFAULT_BLOCK_BYTES, help="bytes of the largest block (%(default)s)")


def _add_checkpoints(add: Callable[..., object]) -> None:
    """Add where checkpoints go and come from, and whose they are. Nodes, which use them, may be in other folders."""
    folder = "folder of the job's checkpoints, any fsspec URL"
    add("--checkpoint", type=storage.from_anywhere, default="", metavar="URL", help=folder)
    saving = "seconds between checkpoints; 0: on demand only (%(default)s)"
    add(
        "--checkpoint-interval",
        type=_interval,
        default=CoordinatorSettings.checkpoint_interval,
        metavar="S",
        help=saving,
    )
    first = "start from this checkpoint, or from the newest in this folder"
    add("--restore", type=storage.from_anywhere, default="", metavar="URL", help=first)
    mine = "name of this training run: checkpoints have it, and only its own are loaded or dropped"
    add("--identity", type=_identity, metavar="TEXT", help=f"{mine} (that of the journal, else random)")


def _add_life(add: Callable[..., object]) -> None:
    """Add what says how this start follows those before it, and who runs the job."""
    lost = "above 1 without a journal, the state is put together from the job's nodes"
    add("--term", type=_positive, default=1, metavar="N", help=f"term of this start, at least; {lost} (%(default)s)")
    add(
        "--begin-again",
        action="store_true",
        help="nobody of an earlier term is left: what a journal has of one gives way to --restore; its ledger goes on",
    )
    add(
        "--launched",
        action="store_true",
        help="elasticrun has started it, and ends it by SIGUSR1: SIGTERM and SIGINT, which all may have got, do not",
    )
    add(
        "--operator",
        action="store_true",
        help="a Kubernetes operator runs the job: counts, drains, its end are its own; the log is JSON lines",
    )


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no integer") from error


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from error


def _positive(text: str) -> int:
    value = _integer(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {value}")
    return value


def _count(text: str) -> int:
    value = _positive(text)
    if value > MOST_NODES:
        raise argparse.ArgumentTypeError(f"must be at most {MOST_NODES}, not {value}")
    return value


def _servers(text: str) -> int:
    return 0 if text == "0" else _count(text)


def _replicas(text: str) -> int:
    value = _integer(text)
    if not 0 <= value <= MOST_REPLICAS:
        raise argparse.ArgumentTypeError(f"must be 0 or {MOST_REPLICAS}, not {value}")
    return value


def _seed(text: str) -> int:
    value = _integer(text)
    if not 0 <= value <= MOST_SEED:
        raise argparse.ArgumentTypeError(f"must be from 0 to {MOST_SEED}, not {value}")
    return value


def _identity(text: str) -> str:
    if not storage.IDENTITY.fullmatch(text):
        raise argparse.ArgumentTypeError("must be up to 100 letters, digits, '.', '_' and '-', a letter or digit first")
    return text


def _seconds(text: str) -> float:
    value = _number(text)
    if not 0 < value <= _MOST_SECONDS:  # neither is nan
        raise argparse.ArgumentTypeError(f"must be more than 0 seconds and at most {_MOST_SECONDS:.0f}, not {text}")
    return value


def _interval(text: str) -> float:
    return 0.0 if _number(text) == 0 else _seconds(text)
