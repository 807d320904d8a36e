"""This module reads the pod templates of a job's document, as they stand and as pods of each role take them. Pure."""

import contextlib
import copy
from typing import Any

from dl2_scheduler.cluster.document.template import SLOTS
from elastic_ps.core.configuration import Role
from k8s.elastic_operator.job.model import Body, Desired
from k8s.foundation.names import MAIN

Manifest = dict[str, Any]


def _part(job: Desired, role: Role) -> Body:
    found: Body = job.spec.get("workers" if role is Role.WORKER else "servers") or {}
    return found


def template_of(job: Desired, role: Role) -> tuple[Manifest, Manifest, Manifest]:
    """Return metadata, pod spec and container of a role. Servers without a template take the workers' surroundings."""
    own = copy.deepcopy(dict(_part(job, role).get("template") or {}))
    if own:
        spec = _given(own.get("spec"))
        (found,) = spec.pop("containers")
        container = _given(found)
        _without_slots(container)
        return _given(own.get("metadata")), spec, container
    meta, spec, container = template_of(job, Role.WORKER)
    for name in ("command", "args", "workingDir", "resources"):
        container.pop(name, None)
    spec.pop("resources", None)  # of the pod as a whole
    return meta, spec, container


def _given(part: Body | None) -> Manifest:
    """Return the fields that have a value: a name with nothing behind it, as in `volumes:`, is as good as left out."""
    return {name: value for name, value in (part or {}).items() if value is not None}


def image(job: Desired, role: Role, default: str) -> str:
    """Return the image of a role's pods.

    Args:
        job: of whose document.
        role: of the pods.
        default: where the template names none.
    """
    *_, container = template_of(job, role)
    return str(container.get("image", default))


def written(job: Desired, image: str) -> list[Manifest]:
    """Return the pods as the document's author wrote them, with what no pod can be without, to be judged.

    Args:
        job: of whose document.
        image: of containers that name none.
    """
    found = []
    for role in Role:
        own = copy.deepcopy(dict(_part(job, role).get("template") or {}))
        if not own:
            continue
        (container,) = own["spec"]["containers"]
        _without_slots(container)
        named = {"image": image, "name": MAIN, **container}
        meta = {**own.get("metadata", {}), "name": f"{job.name}-{role}-1", "namespace": job.namespace}
        spec = {**own["spec"], "containers": [named]}
        found.append({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    return found


def _without_slots(container: Manifest) -> None:
    """Remove the request for slots, which virtual nodes have, and these have not."""
    with contextlib.suppress(AttributeError, KeyError, TypeError):  # where it is no such thing: the API server says so
        container["resources"]["requests"].pop(SLOTS, None)


def own_program(job: Desired, module: str) -> list[str]:
    """Return the argv that runs a module of ours by the interpreter that the workers' command names.

    A `coordinator.py` or a `protos` beside the script, in the image's folder or the template's, would be imported in
    the place of ours, which are installed: so that folder is left out.

    Args:
        job: of whose document.
        module: as `python -m` takes it.
    """
    _, _, container = template_of(job, Role.WORKER)
    return [str(container["command"][0]), "-P", "-m", module]
