"""This module says which nodes a pod may go to, by taints, node selectors and required node affinity. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dl2_scheduler.backends.kube.placement.label_expressions import Expression, expressions_of
from dl2_scheduler.backends.kube.placement.pod_affinity_spec import NeighbourRules, neighbour_rules_of

_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
_REPELS = ("NoSchedule", "NoExecute")


@dataclass(frozen=True)
class Taint:
    """A `Taint` keeps pods off a node.

    Attributes:
        key: of the taint.
        value: "" where it has none.
        effect: NoSchedule, NoExecute or PreferNoSchedule.
    """

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


@dataclass(frozen=True)
class Toleration:
    """A `Toleration` lets a pod go to nodes with certain taints.

    Attributes:
        key: of the taint; "": any.
        operator: Exists or Equal.
        value: of the taint, for Equal.
        effect: of the taint; "": any.
    """

    key: str
    operator: str
    value: str
    effect: str

    def accepts(self, taint: Taint) -> bool:
        """Return whether a pod with it may go to a node with this taint."""
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        return self.operator == "Exists" or (self.key == taint.key and self.value == taint.value)


@dataclass(frozen=True)
class Constraints:
    """`Constraints` say where a pod may go.

    Attributes:
        selector: labels that a node must have.
        terms: of required node affinity: one of them must hold as a whole; None: nothing is required.
        tolerations: of the pod.
        neighbours: what it asks about the pods that are there; None: nothing.
        volumes: like `terms`, of each volume that it claims: the nodes that reach it.
        devices: it claims devices (`resourceClaims`), which somebody has to allot; no part of a kind's name.
    """

    selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[tuple[Expression, ...], ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    neighbours: NeighbourRules | None = None
    volumes: tuple[tuple[tuple[Expression, ...], ...], ...] = ()
    devices: bool = field(default=False, repr=False)

    @property
    def of_nodes(self) -> "Constraints":
        """The constraints without what the pod asks about other pods."""
        return replace(self, neighbours=None) if self.neighbours else self

    @property
    def unknown(self) -> tuple[str, ...]:
        """The fields that the pod uses and this scheduler does not implement."""
        return (*(self.neighbours.unknown if self.neighbours else ()), *(["resourceClaims"] if self.devices else []))

    def refusal(self, name: str, labels: Mapping[str, str], taints: Sequence[Taint], cordoned: bool) -> str:
        """Return why a pod may not go to a node, for people; "": it may.

        Args:
            name: of the node.
            labels: of the node.
            taints: of the node.
            cordoned: whether nothing new shall go there.
        """
        return self.repelled(taints, cordoned) or self.misses(name, labels)

    def repelled(self, taints: Sequence[Taint], cordoned: bool) -> str:
        """Return why a node keeps a pod off; "": it does not."""
        if cordoned and not any(each.accepts(Taint(_UNSCHEDULABLE, "", "NoSchedule")) for each in self.tolerations):
            return "is cordoned"
        for taint in taints:
            if taint.effect in _REPELS and not any(each.accepts(taint) for each in self.tolerations):
                return f"has the taint {taint}, which the pod does not tolerate"
        return ""

    def misses(self, name: str, labels: Mapping[str, str]) -> str:
        """Return what a pod asks of a node that this one has not; "": nothing."""
        if any(labels.get(key) != value for key, value in self.selector):
            return "has not the labels of the pod's nodeSelector"
        if self.terms is not None and not _meets(self.terms, name, labels):
            return "does not meet the pod's node affinity"
        if not all(_meets(terms, name, labels) for terms in self.volumes):
            return "does not reach the pod's volume"
        return ""


def _meets(terms: tuple[tuple[Expression, ...], ...], name: str, labels: Mapping[str, str]) -> bool:
    return any(term and all(expression.holds(labels, name) for expression in term) for term in terms)


def constraints_of(spec: Mapping[str, Any], namespace: str, labels: Mapping[str, str]) -> Constraints:
    """Read a pod's spec, or a template's.

    Args:
        spec: of the pod.
        namespace: of the pod.
        labels: of the pod.
    """
    affinity = spec.get("affinity") or {}
    required = (affinity.get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    return Constraints(
        selector=tuple(sorted((spec.get("nodeSelector") or {}).items())),
        terms=None if required is None else terms_of(required),
        tolerations=tuple(
            Toleration(*(each.get(key) or "" for key in ("key", "operator", "value", "effect")))
            for each in spec.get("tolerations") or ()
        ),
        neighbours=neighbour_rules_of(spec, namespace, labels),
        devices=bool(spec.get("resourceClaims")),
    )


def terms_of(selector: Mapping[str, Any]) -> tuple[tuple[Expression, ...], ...]:
    """Read a NodeSelector: one of its terms has to hold as a whole."""
    return tuple(expressions_of(term) + expressions_of(term, "matchFields") for term in selector["nodeSelectorTerms"])
