"""This program, `python -m k8s.elastic_operator`, keeps every ElasticJob as its document says."""

import argparse
import asyncio
import json
import logging
import os
import secrets
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import kopf

from dl2_scheduler.cluster.errors import BadInput
from elastic_ps.core.errors import ConfigurationError
from elastic_ps.system.jsonlog import JsonLines
from k8s.elastic_operator import pages
from k8s.elastic_operator.api_writes import OperatorApi
from k8s.elastic_operator.handlers import Keepers, registry
from k8s.elastic_operator.health import Readiness, troubles
from k8s.elastic_operator.job.manifests import COORDINATOR_RESOURCES, Defaults
from k8s.elastic_operator.job_loop import KeeperContext
from k8s.elastic_operator.metrics import OperatorMetrics
from k8s.elastic_operator.operator_key import operator_key
from k8s.foundation.api_server import ApiError, KubeApi
from k8s.foundation.lease import LEASE_CALL_SECONDS, Lease

log = logging.getLogger("k8s.elastic_operator")

_PROGRESS_SECONDS = 5.0
_WRITES_PER_SECOND = 10.0
_CALL_SECONDS = 15.0
_CALLS = 256
"""Calls at once to jobs' coordinators: one that stands still holds a thread for seconds, and others do not wait."""


def main(arguments: list[str] | None = None) -> int:
    """Run until SIGTERM; return the exit status: 0; 1: the lease was lost, nobody answers; 2: it is set up wrongly."""
    options = _parser().parse_args(arguments)
    _log_as_json()
    try:
        return asyncio.run(_serve(options))
    except (ConfigurationError, BadInput) as error:
        sys.stderr.write(f"operator: {error}\n")
        return 2
    except ApiError as error:
        sys.stderr.write(f"operator: it cannot begin: {error}\n")
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m k8s.elastic_operator", description=__doc__)
    add = parser.add_argument
    add("--namespace", action="append", default=[], help="whose jobs to keep; again for more (all)")
    add("--key-secret", default="dl2-operator-key", help="that the jobs' tokens are made from (%(default)s)")
    add("--create-key", action="store_true", help="make that secret where it is missing")
    add("--lease-namespace", default=os.environ.get("POD_NAMESPACE", "default"), help="and the secret's (%(default)s)")
    add("--lease-name", default="dl2-operator", help="whoever holds it acts (%(default)s)")
    add("--image", default="", help="of pods whose template names none")
    what = "of jobs' coordinators, as those of a container (%(default)s)"
    add("--coordinator-resources", type=_object, default=json.dumps(COORDINATOR_RESOURCES), metavar="JSON", help=what)
    add("--scheduler", default="dl2", help="of pods whose template names none (%(default)s)")
    add("--port", type=int, default=8080, help="of /healthz, /readyz and /metrics; 0: none (%(default)s)")
    return parser


def _object(text: str) -> dict[str, Any]:
    """Return the object that a text has as JSON; what is in it, the API server judges."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"no JSON: {error}") from error
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError('no object: give one as in {"limits": {"memory": "1Gi"}}')
    return found


def _log_as_json() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("kopf").setLevel(logging.WARNING)


async def _serve(options: argparse.Namespace) -> int:
    """Wait for the lease, then keep jobs until a signal or the lease's loss."""
    metrics, stop = OperatorMetrics(), asyncio.Event()
    identity = f"{socket.gethostname()}-{secrets.token_hex(4)}"
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(_CALLS, "call"))

    def lost() -> None:
        loop.call_soon_threadsafe(stop.set)

    lease_server = KubeApi(in_cluster=True, call_seconds=LEASE_CALL_SECONDS)
    lease = Lease(lease_server, options.lease_namespace, options.lease_name, identity, lost)
    server = KubeApi(in_cluster=True, call_seconds=_CALL_SECONDS)
    key = await asyncio.to_thread(
        operator_key, server, options.lease_namespace, options.key_secret, create=options.create_key
    )
    api = OperatorApi(server, lambda: lease.held)
    metrics.count_calls(lambda: server.requests)
    keepers = _keepers(options, key, api, metrics, stop)
    with _pages(options, metrics, lease, keepers, api):
        try:
            await _acquired(lease)
            log.info("%s leads", identity)
            metrics.leader.set(1)
            await _keep(options, keepers, stop)
            if stop.is_set():
                log.error("the lease is lost, or a keeper died: another process takes over")
            return 1 if stop.is_set() else 0
        finally:
            await api.close()
            await asyncio.to_thread(lease.release)


async def _acquired(lease: Lease) -> None:
    """Return when the lease is held; it is renewed from then on."""
    stopped = threading.Event()
    try:
        await asyncio.to_thread(lease.acquire, stopped)
    finally:
        stopped.set()  # where this is cancelled, the thread ends too


def _keepers(
    options: argparse.Namespace, key: bytes, api: OperatorApi, metrics: OperatorMetrics, stop: asyncio.Event
) -> Keepers:
    keepers: Keepers
    shared = KeeperContext(
        api=api,
        key=key,
        defaults=Defaults(options.image, options.scheduler, options.coordinator_resources),
        metrics=metrics,
        progress_seconds=lambda: max(_PROGRESS_SECONDS, len(keepers) / _WRITES_PER_SECOND),
    )
    keepers = Keepers(shared, stop)
    return keepers


async def _keep(options: argparse.Namespace, keepers: Keepers, stop: asyncio.Event) -> None:
    try:
        await kopf.operator(
            registry=registry(keepers),
            standalone=True,
            clusterwide=not options.namespace,
            namespaces=options.namespace,
            stop_flag=stop,
        )
    finally:
        await keepers.close()


def _pages(
    options: argparse.Namespace, metrics: OperatorMetrics, lease: Lease, keepers: Keepers, api: OperatorApi
) -> AbstractContextManager[int]:
    if not options.port:
        return nullcontext(0)
    readiness = Readiness(lambda: api.first_job(options.namespace), lambda: lease.held and not keepers.pulses())

    def healthy() -> list[str]:
        return troubles(lease.silent, keepers.pulses(), readiness.deaf)

    return pages.serve(f"0.0.0.0:{options.port}", metrics, healthy, readiness.trouble)


if __name__ == "__main__":
    sys.exit(main())
