"""This module reads the pod template of an ElasticJob: what a task runs.

Any field of Kubernetes' own may stand in it.
"""

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator
from pydantic.alias_generators import to_camel

from dl2_scheduler.cluster.document.quantities import amount
from dl2_scheduler.cluster.errors import BadInput
from elastic_ps.system.option_checks import LONGEST_TEXT

SLOTS = "slots"
"""The resource of virtual nodes; a task takes one unless its container says otherwise."""

_RUNTIMES_OWN = "ELASTIC_"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class KubernetesOnly:
    """A `KubernetesOnly` mark says that a cluster of this machine does not act on a field.

    Attributes:
        here: what happens on this machine instead.
    """

    here: str = "it has no effect"


def _amount(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return amount(value)
    except BadInput as error:
        raise ValueError(str(error)) from error


def _word(value: str) -> str:
    if len(value.encode(errors="replace")) > LONGEST_TEXT:
        raise ValueError(f"longer than {LONGEST_TEXT:,} bytes, which no program can be given: put it into a file")
    return value


Amount = Annotated[float, BeforeValidator(_amount), Field(ge=0, allow_inf_nan=False)]
Text = Annotated[str, Field(min_length=1)]
Word = Annotated[str, AfterValidator(_word)]
"""That a program is given."""


class DocumentPart(BaseModel):
    """A `DocumentPart` reads a part of a document, and refuses fields that it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, strict=True)

    def remarks(self, path: str) -> Iterator[str]:
        """Yield a sentence for each field given that only Kubernetes acts on.

        Args:
            path: the path of this part in its document.
        """
        for name in sorted(self.model_fields_set):
            field, value = type(self).model_fields.get(name), getattr(self, name)
            where = f"{path}.{field.alias if field else name}"
            marks = [KubernetesOnly()] if field is None else field.metadata
            marks = [mark for mark in marks if isinstance(mark, KubernetesOnly)]
            if marks and value is not None:
                yield f"{where} is for Kubernetes; here {marks[0].here}"
            for number, part in enumerate(value if isinstance(value, tuple) else [value]):
                if isinstance(part, DocumentPart):
                    yield from part.remarks(f"{where}.{number}" if isinstance(value, tuple) else where)


class OpenDocumentPart(DocumentPart):
    """An `OpenDocumentPart` also takes Kubernetes' own fields, by their names alone."""

    model_config = ConfigDict(extra="allow")

    kubernetes: ClassVar[str] = ""
    """Names of fields, separated by spaces; what lies below them is Kubernetes' to judge."""

    @model_validator(mode="after")
    def _has_known_fields(self) -> Self:
        known = sorted({*self.kubernetes.split(), *(str(field.alias) for field in type(self).model_fields.values())})
        for name in self.model_extra or {}:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
                raise ValueError(f"{name} is unknown: " + (f"write {near[0]}" if near else "leave it out"))
        return self


class Resources(OpenDocumentPart):
    """`Resources` say what a task takes.

    Attributes:
        requests: amount by resource; `slots` are those of virtual nodes, the others Kubernetes'.
    """

    kubernetes = "claims limits"

    requests: dict[str, Amount] = {}

    @model_validator(mode="after")
    def _takes_something(self) -> Self:
        if self.requests.get(SLOTS) == 0:
            raise ValueError(f"requests.{SLOTS} is 0: give a number above 0, or leave it out")
        return self

    def remarks(self, path: str) -> Iterator[str]:
        """See `DocumentPart.remarks`."""
        yield from super().remarks(path)
        for name in sorted(self.requests):
            if name != SLOTS:
                yield f"{path}.requests.{name} is for Kubernetes; here a task takes {SLOTS} and nothing else"


class Variable(DocumentPart):
    """A `Variable` is one of a container's environment.

    Attributes:
        name: not one of the runtime's own.
        value: text.
        value_from: where Kubernetes takes it from instead.
    """

    name: str
    value: Word = ""
    value_from: Annotated[dict[str, Any] | None, KubernetesOnly("the variable is empty")] = None

    @field_validator("name")
    @classmethod
    def _is_free(cls, name: str) -> str:
        if not _VARIABLE.fullmatch(name):
            raise ValueError(
                f"{name!r} is no name of a variable: give letters, digits and _, not beginning with a digit"
            )
        if name.startswith(_RUNTIMES_OWN):
            raise ValueError(f"{name}: names that begin with {_RUNTIMES_OWN} are the runtime's: give another")
        return name

    @model_validator(mode="after")
    def _has_one_value(self) -> Self:
        if self.value and self.value_from is not None:
            raise ValueError(f"{self.name} has value and valueFrom: leave one out")
        return self


class Container(OpenDocumentPart):
    """A `Container` describes what a task runs; there is one in each.

    Attributes:
        image: names the job's type where `modelType` is left out.
        command: program and arguments.
        args: further arguments.
        working_dir: where it runs: absolute, or from where the document was submitted, which is the default.
        env: its environment, beside what it inherits.
        resources: the resources that it takes; None: one slot.
    """

    kubernetes = (
        "envFrom imagePullPolicy lifecycle livenessProbe name ports readinessProbe resizePolicy restartPolicy "
        "restartPolicyRules securityContext startupProbe stdin stdinOnce terminationMessagePath "
        "terminationMessagePolicy tty volumeDevices volumeMounts"
    )

    image: Annotated[Text | None, KubernetesOnly("tasks run in the environment of dl2 serve")] = None
    command: Annotated[tuple[Word, ...], Field(strict=False)] = ()
    args: Annotated[tuple[Word, ...], Field(strict=False)] = ()
    working_dir: str | None = None
    env: Annotated[tuple[Variable, ...], Field(strict=False)] = ()
    resources: Resources | None = None

    @model_validator(mode="after")
    def _has_each_variable_once(self) -> Self:
        names = [variable.name for variable in self.env]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"env has {twice} twice: leave one out")
        return self


class PodSpec(OpenDocumentPart):
    """A `PodSpec` is what Kubernetes calls a pod's spec.

    Attributes:
        containers: exactly one.
    """

    kubernetes = (
        "activeDeadlineSeconds affinity automountServiceAccountToken dnsConfig dnsPolicy enableServiceLinks "
        "evictionResponders hostAliases hostIPC hostNetwork hostPID hostUsers hostname hostnameOverride "
        "imagePullSecrets initContainers nodeName nodeSelector os overhead preemptionPolicy priority "
        "priorityClassName readinessGates resourceClaims resources restartPolicy runtimeClassName schedulerName "
        "schedulingGates schedulingGroup securityContext serviceAccount serviceAccountName setHostnameAsFQDN "
        "shareProcessNamespace subdomain terminationGracePeriodSeconds tolerations topologySpreadConstraints volumes"
    )

    containers: Annotated[tuple[Container], Field(strict=False)]


class TemplateMetadata(DocumentPart):
    """`TemplateMetadata` are what every pod of a template is labelled with.

    Attributes:
        labels: the labels of the pods.
        annotations: the annotations of the pods.
    """

    labels: Annotated[dict[str, str] | None, KubernetesOnly()] = None
    annotations: Annotated[dict[str, str] | None, KubernetesOnly()] = None


class Template(DocumentPart):
    """A `Template` is what Kubernetes calls a pod's template."""

    metadata: TemplateMetadata = TemplateMetadata()
    spec: PodSpec
