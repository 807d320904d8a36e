"""This module says where pods may go by the volumes that they claim, and what comes before they are bound. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dl2_scheduler.backends.kube.apiserver.objects import PodInfo
from dl2_scheduler.backends.kube.placement.label_expressions import Expression
from dl2_scheduler.backends.kube.placement.node_constraints import terms_of

SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""Annotation of a claim: the node near which its volume is to be made."""

Terms = tuple[tuple[Expression, ...], ...]
ClaimKey = tuple[str, str]
"""Namespace and name of a claim."""


@dataclass(frozen=True)
class ClaimInfo:
    """A `ClaimInfo` is what the scheduler knows of a PersistentVolumeClaim.

    Attributes:
        namespace: of the claim.
        name: of the claim.
        phase: Pending, Bound or Lost.
        deleting: it is about to go.
        volume: that it is bound to; "": none.
        storage: its storage class; "": none.
        alone: one pod at a time may use it.
        chosen: node near which its volume is to be made; "": none has been chosen.
    """

    namespace: str
    name: str
    phase: str
    deleting: bool
    volume: str
    storage: str
    alone: bool
    chosen: str

    @property
    def key(self) -> ClaimKey:
        """Namespace and name of the claim."""
        return self.namespace, self.name

    @property
    def waits_for_its_class(self) -> bool:
        """Return whether it has no volume yet, and one is to come by its storage class."""
        return self.phase == "Pending" and bool(self.storage) and not self.deleting


@dataclass(frozen=True)
class ClaimedVolume:
    """A `ClaimedVolume` is what a claim means for the pods that name it.

    Attributes:
        refusal: why none of them may be bound now, for people; "": they may.
        terms: of nodes that reach it: one of them must hold as a whole; None: all nodes do.
        alone: one pod at a time may use it.
        made: there is a volume; else it is made when a node has been chosen.
        chosen: that node; "": none yet.
    """

    refusal: str = ""
    terms: Terms | None = None
    alone: bool = False
    made: bool = True
    chosen: str = ""


def claim_of(found: Mapping[str, Any]) -> ClaimInfo:
    """Read a PersistentVolumeClaim."""
    metadata, spec = found["metadata"], found["spec"]
    return ClaimInfo(
        metadata["namespace"],
        metadata["name"],
        (found.get("status") or {}).get("phase") or "Pending",
        "deletionTimestamp" in metadata,
        spec.get("volumeName") or "",
        spec.get("storageClassName") or "",
        "ReadWriteOncePod" in (spec.get("accessModes") or ()),
        (metadata.get("annotations") or {}).get(SELECTED_NODE, ""),
    )


def bound_volume(claim: ClaimInfo, volume: Mapping[str, Any]) -> ClaimedVolume:
    """Return what a claim means that has a PersistentVolume."""
    required = (volume["spec"].get("nodeAffinity") or {}).get("required")
    return ClaimedVolume(terms=terms_of(required) if required else None, alone=claim.alone)


def pending_volume(claim: ClaimInfo, storage: Mapping[str, Any] | None) -> ClaimedVolume:
    """Return what a claim means that has no volume, by its StorageClass; None: it has no class."""
    if storage is None or storage.get("volumeBindingMode") != "WaitForFirstConsumer":
        return ClaimedVolume(f"its claim {claim.name} is not bound to a volume yet")
    if storage["provisioner"] == "kubernetes.io/no-provisioner":
        return ClaimedVolume(
            f"its claim {claim.name} has no volume, and its class {claim.storage} makes none: name one in its "
            "spec.volumeName"
        )
    if claim.chosen:
        here = Expression("metadata.name", "In", (claim.chosen,), is_field=True)
        return ClaimedVolume(terms=((here,),), alone=claim.alone, made=False, chosen=claim.chosen)
    allowed = tuple(
        tuple(Expression(each["key"], "In", tuple(each["values"])) for each in term["matchLabelExpressions"])
        for term in storage.get("allowedTopologies") or ()
    )
    return ClaimedVolume(terms=allowed or None, alone=claim.alone, made=False)


def with_volumes(
    ours: Sequence[PodInfo], bound: Sequence[PodInfo], volumes: Mapping[ClaimKey, ClaimedVolume]
) -> list[PodInfo]:
    """Return pods that are to be bound, with what their volumes ask.

    Args:
        ours: the pods.
        bound: all pods that have a node.
        volumes: of the claims that they name.
    """
    if not any(pod.claims for pod in ours):
        return list(ours)
    users = {(pod.namespace, name): f"{pod.name} has it" for pod in bound for name in pod.claims}
    return [_with_volumes(pod, volumes, users) for pod in ours]


def _with_volumes(pod: PodInfo, volumes: Mapping[ClaimKey, ClaimedVolume], users: dict[ClaimKey, str]) -> PodInfo:
    keys = [(pod.namespace, name) for name in pod.claims]
    found = {key: volumes.get(key, ClaimedVolume(f"its claim {key[1]} is not known yet")) for key in keys}
    refusals = [volume.refusal for volume in found.values() if volume.refusal]
    for key, volume in found.items():
        if volume.alone and key in users:
            refusals.append(f"its claim {key[1]} is for one pod at a time, and {users[key]}")
    if refusals:
        return replace(pod, refusal=refusals[0])
    users.update({key: f"{pod.name} is to have it" for key, volume in found.items() if volume.alone})
    terms = tuple(volume.terms for volume in found.values() if volume.terms is not None)
    unmade = tuple(key[1] for key, volume in found.items() if not volume.made)
    return replace(pod, constraints=replace(pod.constraints, volumes=terms), unmade=unmade)
