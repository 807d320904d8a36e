"""This module makes Kubernetes' events, by which people are told on an object what became of it."""

import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from k8s.foundation.names import GROUP, KIND, VERSION

_LONGEST_MESSAGE = 1024  # the API server takes no longer one
_LONGEST_NAME = 253  # likewise


def event_path(namespace: str) -> str:
    """Return the path at which events of a namespace are created."""
    return f"/api/v1/namespaces/{namespace}/events"


def job_reference(namespace: str, name: str, uid: str) -> dict[str, str]:
    """Return what an event on an ElasticJob says of the job.

    Args:
        namespace: of the job.
        name: of the job.
        uid: of the job's object.
    """
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "name": name, "namespace": namespace, "uid": uid}


def event_body(
    about: Mapping[str, str], reason: str, message: str, component: str, *, instance: str = "", warning: bool = True
) -> dict[str, Any]:
    """Return an event, as the API server creates it.

    Args:
        about: reference to the object that it is about, as of `job_reference`.
        reason: one word, in camel case.
        message: for people.
        component: that reports it, as people know it.
        instance: of the component; "": not said.
        warning: rather than normal.
    """
    now, ending = timestamp(datetime.now(UTC)), f".{secrets.token_hex(8)}"
    name = about["name"][: _LONGEST_NAME - len(ending)].rstrip("-.") + ending
    body = {
        "metadata": {"name": name, "namespace": about["namespace"]},
        "involvedObject": dict(about),
        "reason": reason,
        "message": message[:_LONGEST_MESSAGE],
        "type": "Warning" if warning else "Normal",
        "count": 1,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "source": {"component": component},
        "reportingComponent": component,
    }
    return {**body, "reportingInstance": instance} if instance else body


def timestamp(when: datetime) -> str:
    """Return a time as Kubernetes writes it: RFC 3339, in UTC, whole seconds."""
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
