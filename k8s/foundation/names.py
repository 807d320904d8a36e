"""This module has the names that ElasticJobs, their pods and their labels bear in a cluster."""

from collections.abc import Mapping
from typing import Any

GROUP, VERSION, PLURAL, KIND = "dl2.scheduler", "v1alpha1", "elasticjobs", "ElasticJob"
JOB_LABEL, ROLE_LABEL, NODE_LABEL = f"{GROUP}/job", f"{GROUP}/role", f"{GROUP}/node"
JOINED_LABEL = f"{GROUP}/joined"
"""Of a pod whose node has belonged to the job's configuration: "true"."""
COORDINATOR, SERVER, WORKER = "coordinator", "server", "worker"
"""The roles of a job's pods, as `ROLE_LABEL` says them."""
MAIN = "main"
"""The container of a job's pod that is the job's: whoever runs a mesh may have others added to it."""


def owner_of(metadata: Mapping[str, Any]) -> str:
    """Return the name of the ElasticJob that an object was made for; "": none. Anybody may give it a job's labels.

    Args:
        metadata: of the object, as the API server writes it.
    """
    owners = metadata.get("ownerReferences") or ()
    ours = (each["name"] for each in owners if each["kind"] == KIND and each["apiVersion"].startswith(f"{GROUP}/"))
    return next(ours, "")
