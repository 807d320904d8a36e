"""This module reads what a pod asks about its neighbours: affinity, anti-affinity, spreading, host ports. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dl2_scheduler.backends.kube.placement.label_expressions import Expression, expressions_of

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_ANY_ADDRESS = "0.0.0.0"


@dataclass(frozen=True)
class PodSelector:
    """A `PodSelector` says which pods are meant.

    Attributes:
        namespaces: theirs; None: all.
        expressions: that their labels meet; None: no pod does.
        living: those about to go are none of them.
    """

    namespaces: tuple[str, ...] | None
    expressions: tuple[Expression, ...] | None
    living: bool = False

    def has(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return whether a pod is one of them."""
        if self.expressions is None or (self.namespaces is not None and namespace not in self.namespaces):
            return False
        return all(each.holds(labels) for each in self.expressions)


@dataclass(frozen=True)
class AffinityTerm:
    """An `AffinityTerm` means pods of a kind in one place.

    Attributes:
        kind: of the pods.
        key: label whose value is the same on all nodes of a place.
    """

    kind: PodSelector
    key: str


@dataclass(frozen=True)
class KubePodSpread:
    """A `KubePodSpread` says how evenly pods of a kind are spread over places.

    Attributes:
        term: the pods, and the places.
        skew: most by which a place may have more than the one with the fewest.
        places: fewest that have to be there, for the fewest not to be 0.
        by_affinity: only nodes count that the pod's selector and node affinity allow.
        by_taints: only nodes count whose taints the pod tolerates.
    """

    term: AffinityTerm
    skew: int
    places: int
    by_affinity: bool
    by_taints: bool


@dataclass(frozen=True)
class HostPort:
    """A `HostPort` is a port of its host that a pod takes.

    Attributes:
        number: of the port.
        protocol: TCP, UDP or SCTP.
        address: of the host; 0.0.0.0: all.
    """

    number: int
    protocol: str
    address: str

    def meets(self, other: "HostPort") -> bool:
        """Return whether two pods on one node cannot have both ports."""
        if (self.number, self.protocol) != (other.number, other.protocol):
            return False
        return self.address == other.address or _ANY_ADDRESS in (self.address, other.address)


@dataclass(frozen=True)
class NeighbourRules:
    """`NeighbourRules` are what a pod asks about the pods beside it.

    Attributes:
        near: pods that must be in its place.
        apart: pods that must not be in its place; and no pod of these may come there later.
        spread: over places.
        ports: of its host.
        unknown: fields that are not implemented.
    """

    near: tuple[AffinityTerm, ...]
    apart: tuple[AffinityTerm, ...]
    spread: tuple[KubePodSpread, ...]
    ports: tuple[HostPort, ...]
    unknown: tuple[str, ...]


def neighbour_rules_of(spec: Mapping[str, Any], namespace: str, labels: Mapping[str, str]) -> NeighbourRules | None:
    """Read a pod's spec, or a template's; return None where it asks nothing about others.

    Args:
        spec: of the pod.
        namespace: of the pod.
        labels: of the pod.
    """
    affinity = spec.get("affinity") or {}
    near, apart = ((affinity.get(kind) or {}).get(_REQUIRED) or () for kind in ("podAffinity", "podAntiAffinity"))
    spread = [
        each for each in spec.get("topologySpreadConstraints") or () if each["whenUnsatisfiable"] == "DoNotSchedule"
    ]
    ports = tuple(sorted(set(_ports(spec)), key=lambda port: (port.number, port.protocol, port.address)))
    if not (near or apart or spread or ports):
        return None
    unknown = [
        f"affinity.{kind}.namespaceSelector"
        for kind, terms in (("podAffinity", near), ("podAntiAffinity", apart))
        if any(term.get("namespaceSelector") for term in terms)
    ]
    return NeighbourRules(
        tuple(_term(term, namespace, labels) for term in near),
        tuple(_term(term, namespace, labels) for term in apart),
        tuple(_spread(each, namespace, labels) for each in spread),
        ports,
        tuple(unknown),
    )


def _term(term: Mapping[str, Any], namespace: str, labels: Mapping[str, str]) -> AffinityTerm:
    """Read a term. A selector of namespaces by their labels is taken for all: none is nearer to what it keeps away."""
    everywhere = term.get("namespaceSelector") is not None
    names = tuple(term.get("namespaces") or ()) or (namespace,)
    return AffinityTerm(PodSelector(None if everywhere else names, _expressions(term, labels)), term["topologyKey"])


def _spread(each: Mapping[str, Any], namespace: str, labels: Mapping[str, str]) -> KubePodSpread:
    return KubePodSpread(
        AffinityTerm(PodSelector((namespace,), _expressions(each, labels), living=True), each["topologyKey"]),
        each["maxSkew"],
        each.get("minDomains") or 1,
        each.get("nodeAffinityPolicy", "Honor") == "Honor",
        each.get("nodeTaintsPolicy", "Ignore") == "Honor",
    )


def _expressions(term: Mapping[str, Any], labels: Mapping[str, str]) -> tuple[Expression, ...] | None:
    """Return a term's labelSelector, with the pod's own values of labels that it names by key; None: it has none."""
    selector = term.get("labelSelector")
    if selector is None:
        return None
    found = [Expression(key, "In", (value,)) for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
        found += [Expression(key, operator, (labels[key],)) for key in term.get(field) or () if key in labels]
    return (*found, *expressions_of(selector))


def _ports(spec: Mapping[str, Any]) -> Iterator[HostPort]:
    """Yield the host ports of a pod's containers, and of those that start first and stay."""
    stay = [each for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always"]
    for container in [*(spec.get("containers") or ()), *stay]:
        for port in container.get("ports") or ():
            number = port.get("hostPort") or (port["containerPort"] if spec.get("hostNetwork") else 0)
            if number:
                yield HostPort(number, port.get("protocol") or "TCP", port.get("hostIP") or _ANY_ADDRESS)
