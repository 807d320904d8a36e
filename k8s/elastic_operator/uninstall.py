"""This program, `python -m k8s.elastic_operator.uninstall`, ends jobs in order before the chart and its operator go."""

import argparse
import contextlib
import sys
import time

from k8s.elastic_operator.job.model import Body
from k8s.foundation.api_server import JOBS_PATH, ApiServer, KubeApi, NotFound, job_path

PATIENCE = 240.0


def main(arguments: list[str] | None = None) -> int:
    """Delete all jobs and wait for their end; return 0, or 1 where some have not ended in time."""
    parser = argparse.ArgumentParser(prog="python -m k8s.elastic_operator.uninstall", description=__doc__)
    parser.add_argument("--namespace", action="append", default=[], help="whose jobs end; again for more (all)")
    parser.add_argument("--delete-secret", metavar="NAMESPACE/NAME", default="", help="the operator's key, at the end")
    options = parser.parse_args(arguments)
    return _uninstall(KubeApi(in_cluster=True), options.namespace, options.delete_secret)


def _uninstall(server: ApiServer, namespaces: list[str], secret: str) -> int:
    deadline = time.monotonic() + PATIENCE
    while jobs := _jobs(server, namespaces):
        names = [(job["metadata"]["namespace"], job["metadata"]["name"]) for job in jobs]
        if time.monotonic() > deadline:
            sys.stderr.write(f"jobs that have not ended: {', '.join('/'.join(name) for name in names)}\n")
            return 1
        for job, name in zip(jobs, names, strict=True):
            if "deletionTimestamp" not in job["metadata"]:
                _delete(server, job_path(*name))
        time.sleep(1.0)
    if secret:
        namespace, _, key = secret.partition("/")
        _delete(server, f"/api/v1/namespaces/{namespace}/secrets/{key}")
    return 0


def _jobs(server: ApiServer, namespaces: list[str]) -> list[Body]:
    try:
        found: list[Body] = server.get(JOBS_PATH)["items"]
    except NotFound:  # their definition has been deleted, and all of them with it
        return []
    return [job for job in found if not namespaces or job["metadata"]["namespace"] in namespaces]


def _delete(server: ApiServer, path: str) -> None:
    with contextlib.suppress(NotFound):
        server.delete(path)


if __name__ == "__main__":
    sys.exit(main())
