"""The ElasticJob document: what a user submits, here and on Kubernetes.

    apiVersion: dl2.scheduler/v1alpha1
    kind: ElasticJob
    metadata:
      name: digits
    spec:
      modelType: digits
      epochs: 40
      workers:
        max: 4
        template:
          spec:
            containers:
              - command: [python, examples/digits.py]
                args: [--epochs, "40"]
      servers:
        max: 2

A field that nothing implements is unknown here, and an unknown field is refused.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from dl2_scheduler.cluster import durations
from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.jobs import Job

API_VERSION = "dl2.scheduler/v1alpha1"
KIND = "ElasticJob"
SLOTS = "slots"
"""The resource of virtual nodes; a task takes one unless its container says otherwise."""

UNKNOWN_SAMPLES = 1.0
"""Of an epoch, until the job has told: policies that weigh by it try such a job first."""

MOST_TASKS = 256
_RUNTIMES_OWN = "ELASTIC_"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONGEST_NAME = 50  # Kubernetes allows 63, of which the names of pods take what follows


def _duration(value: Any) -> float:
    try:
        return durations.seconds(value)
    except BadInput as error:
        raise ValueError(str(error)) from error


Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=MOST_TASKS)]
Duration = Annotated[float, BeforeValidator(_duration)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, strict=True)


class Requests(_Part):
    """What a task takes.

    Attributes:
        requests: amount by resource; Kubernetes' name for the field.
    """

    requests: dict[str, Amount]


class Variable(_Part):
    """Of a container's environment.

    Attributes:
        name: not one of the runtime's own.
        value: text.
    """

    name: str
    value: str = ""

    @field_validator("name")
    @classmethod
    def _is_free(cls, name: str) -> str:
        if not _VARIABLE.fullmatch(name):
            raise ValueError(f"{name!r}: give letters, digits and _, beginning with no digit")
        if name.startswith(_RUNTIMES_OWN):
            raise ValueError(f"{name}: names that begin with {_RUNTIMES_OWN} are the runtime's: give another")
        return name


class Container(_Part):
    """The one container of a task.

    Attributes:
        image: names the job's type where `modelType` is left out. Local jobs run in the environment of `dl2 serve`.
        command: program and arguments.
        args: further arguments.
        working_dir: where it runs; None: where the document was submitted from.
        env: its environment, beside what it inherits.
        resources: that it takes; None: one slot.
    """

    image: str | None = None
    command: Annotated[tuple[str, ...], Field(strict=False)] = ()
    args: Annotated[tuple[str, ...], Field(strict=False)] = ()
    working_dir: str | None = None
    env: Annotated[tuple[Variable, ...], Field(strict=False)] = ()
    resources: Requests | None = None


class PodSpec(_Part):
    """What Kubernetes calls a pod's spec.

    Attributes:
        containers: exactly one.
    """

    containers: Annotated[tuple[Container], Field(strict=False)]


class Template(_Part):
    """What Kubernetes calls a pod's template."""

    spec: PodSpec


class Role(_Part):
    """Workers, or servers.

    Attributes:
        max: most of them that the job can use.
        template: of one.
    """

    max: Count = 16
    template: Template | None = None

    @property
    def container(self) -> Container:
        """Of one task."""
        return self.template.spec.containers[0] if self.template else Container()

    @property
    def demand(self) -> dict[str, float]:
        """Of one task, by resource."""
        resources = self.container.resources
        return dict(resources.requests) if resources else {SLOTS: 1.0}


class Checkpoint(_Part):
    """When the job saves itself.

    Attributes:
        interval: seconds between checkpoints.
    """

    interval: Duration


class Spec(_Part):
    """What the job is.

    Attributes:
        model_type: by which policies know jobs that are alike.
        epochs: that it trains.
        workers: of the job; their container has the command.
        servers: of the job.
        checkpoint: None: none from time to time.
    """

    model_type: Annotated[str, Field(min_length=1)] | None = None
    epochs: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    workers: Role
    servers: Role = Role()
    checkpoint: Checkpoint | None = None

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if not self.workers.container.command:
            raise ValueError("workers need template.spec.containers[0].command: the training program")
        if not (self.model_type or self.workers.container.image):
            raise ValueError("a job needs modelType, or an image to name its type by")
        server = self.servers.container
        if server.command or server.args or server.working_dir:
            raise ValueError("servers run elastic_ps.server: leave command, args and workingDir of their template out")
        return self


class Metadata(_Part):
    """Whose document it is.

    Attributes:
        name: of the job.
    """

    name: Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", max_length=_LONGEST_NAME)]


class ElasticJob(_Part):
    """A document."""

    api_version: Literal["dl2.scheduler/v1alpha1"]
    kind: Literal["ElasticJob"]
    metadata: Metadata
    spec: Spec

    def job(self, arrival: float, samples_per_epoch: float = UNKNOWN_SAMPLES) -> Job:
        """As policies see it.

        Args:
            arrival: seconds since the cluster began.
            samples_per_epoch: as the running job has told.
        """
        spec = self.spec
        return Job(
            id=self.metadata.name,
            arrival=arrival,
            model=spec.model_type or spec.workers.container.image or "",
            epochs=spec.epochs,
            samples_per_epoch=samples_per_epoch,
            worker=spec.workers.demand,
            server=spec.servers.demand,
            max_workers=spec.workers.max,
            max_servers=spec.servers.max,
        )


def read_document(text: str) -> ElasticJob:
    """Read a document.

    Args:
        text: YAML, or JSON, which is YAML too.

    Raises:
        BadInput: with the path of every field that is wrong, and how to mend it.
    """
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise BadInput(f"not YAML: {error}") from error
    if not isinstance(found, dict):
        raise BadInput(f"not an {KIND} document: begin with `apiVersion: {API_VERSION}`")
    try:
        document = ElasticJob.model_validate(found)
        document.job(0.0).check()
    except ValidationError as error:
        raise BadInput("; ".join(_say(detail) for detail in error.errors())) from error
    return document


_WANTED: Mapping[str, str] = {
    "string_pattern_mismatch": "give lower-case letters, digits and -, as Kubernetes wants names",
    "tuple_type": "give a list, as in [python, train.py]",
    "string_type": "give text; a number that is text stands in quotes",
    "model_type": "give fields below it",
}


def _say(detail: ErrorDetails) -> str:
    """One error for its reader."""
    where, kind = ".".join(map(str, detail["loc"])), detail["type"]
    if kind == "extra_forbidden":
        return f"{where}: unknown, or not implemented yet: leave it out (docs/cluster.md lists the fields)"
    if kind == "missing":
        return f"{where}: missing: give it (docs/cluster.md has an example)"
    if kind == "value_error":
        return f"{where}: {detail['ctx']['error']}"
    return f"{where} is {detail['input']!r}: {_WANTED.get(kind) or detail['msg']}"
