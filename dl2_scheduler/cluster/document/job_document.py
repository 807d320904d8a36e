"""This module reads the ElasticJob document: what a user submits, here and on Kubernetes.

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

A job of `mode: all-reduce` has no servers: its workers sum their gradients themselves.

A field that nothing implements is unknown here, and an unknown field is refused. One that Kubernetes alone acts on is
taken, and `ElasticJob.notes` says so.
"""

import reprlib
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails

from dl2_scheduler.cluster import durations
from dl2_scheduler.cluster.document.template import (
    SLOTS,
    Amount,
    Container,
    DocumentPart,
    KubernetesOnly,
    Template,
    Text,
)
from dl2_scheduler.cluster.document.yamltext import read_yaml
from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.jobs import MOST_TASKS, UNKNOWN_SAMPLES, Job
from dl2_scheduler.cluster.ranges import MOST_EPOCHS
from elastic_ps.core.configuration import MOST_REPLICAS
from elastic_ps.core.job_mode import JobMode

API_VERSION = "dl2.scheduler/v1alpha1"
KIND = "ElasticJob"

_MOST_RETRIES = 1_000_000
_LONGEST_TTL = (1 << 31) - 1  # seconds, as Kubernetes has it of its own jobs
_LONGEST_NAME = 50  # Kubernetes allows 63, of which the names of pods take what follows


def _duration(value: Any) -> float:
    try:
        return durations.seconds(value)
    except BadInput as error:
        raise ValueError(str(error)) from error


Count = Annotated[int, Field(ge=1, le=MOST_TASKS)]
Duration = Annotated[float, BeforeValidator(_duration)]


class Scaling(StrEnum):
    """`Scaling` says who decides how many tasks a job has."""

    SCHEDULER = "Scheduler"
    MANUAL = "Manual"


class RoleSpec(DocumentPart):
    """A `RoleSpec` describes a job's workers, or its servers.

    Attributes:
        replicas: how many of them the job has where its owner says so; None: the least.
        min: the fewest of them that the job runs with.
        max: the most of them that the job can use.
        template: the pod template of one of them.
    """

    replicas: Count | None = None
    min: Count = 1
    max: Count = 16
    template: Template | None = None

    @model_validator(mode="after")
    def _is_in_order(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min is {self.min} and max is {self.max}: give a max from {self.min} on")
        if not self.min <= self.count <= self.max:
            raise ValueError(f"replicas is {self.count}: give a number from min, {self.min}, to max, {self.max}")
        return self

    @property
    def count(self) -> int:
        """The count of them that the job has where its owner says so."""
        return self.min if self.replicas is None else self.replicas

    @property
    def container(self) -> Container:
        """The container of one task."""
        return self.template.spec.containers[0] if self.template else Container()

    @property
    def slots(self) -> float:
        """The slots of a virtual node that one task takes."""
        resources = self.container.resources
        return resources.requests.get(SLOTS, 1.0) if resources else 1.0


_USUAL_SERVERS = RoleSpec()

_NO_SERVERS = RoleSpec.model_construct(replicas=None, min=0, max=0, template=None)
"""Of a job of mode all-reduce; no document can say it otherwise."""

_NOT_WITHOUT_SERVERS = {
    "servers": "are for jobs with servers, and mode all-reduce has none: leave them out, or leave mode out",
    "blockReplicas": "is for jobs with servers, and mode all-reduce has none: leave it out",
}
"""Fields that mean nothing in mode all-reduce, and what to do instead; the CRD says the same."""


class Checkpoint(DocumentPart):
    """A `Checkpoint` says when the job saves itself, and where.

    Attributes:
        interval: seconds between checkpoints; None: none from time to time.
        url: of the folder that they go to.
    """

    interval: Duration | None = None
    url: Text | None = None


class Volume(DocumentPart):
    """A `Volume` describes the disk on which a coordinator's folder lies.

    Attributes:
        size: bytes.
        storage_class_name: None: the cluster's own; "": none.
    """

    size: Amount = 2.0**30
    storage_class_name: Annotated[str | None, Field(max_length=253)] = None

    @field_validator("size")
    @classmethod
    def _holds_something(cls, size: float) -> float:
        if size <= 0:
            raise ValueError("no amount of bytes above 0: give one as in 1Gi")
        return size


class CoordinatorSpec(DocumentPart):
    """A `CoordinatorSpec` says how the job's coordinator runs.

    Attributes:
        volume: the volume that its journal and ledger lie on.
    """

    volume: Annotated[Volume, KubernetesOnly("journal and ledger lie in the cluster's folder")]


class SharedMemory(DocumentPart):
    """`SharedMemory` says how pods of one node share memory.

    Attributes:
        host_path: folder of the node that they share.
    """

    host_path: Annotated[Text, Field(max_length=1024), KubernetesOnly("tasks share this machine's memory")]

    @field_validator("host_path")
    @classmethod
    def _is_one_folder(cls, path: str) -> str:
        if not path.startswith("/") or path.startswith("//") or path == "/" or ".." in path.split("/"):
            raise ValueError("give an absolute path without .., as in /dev/shm/dl2")
        return path


class Spec(DocumentPart):
    """A `Spec` describes the job itself.

    Attributes:
        model_type: the type by which policies know jobs that are alike.
        epochs: the epochs that it trains; None: only where its owner says how many tasks it has.
        scaling: who says how many tasks it has.
        mode: who updates the parameters: servers, or each worker by gradients that all of them have summed.
        workers: the workers of the job; their container has the command.
        servers_given: the servers of the job, as the document has them; see `servers`.
        block_replicas: servers that keep a copy of each block; `replicas` of a role are its tasks.
        checkpoint: None: none from time to time.
        suspend: the job shall not run for now.
        gang_timeout: seconds that pods which cannot all be placed keep their places.
        retry_limit: deaths of tasks that are mended; one more fails the job.
        ttl_seconds_after_finished: until an ended job is deleted; None: never.
        coordinator: None: on Kubernetes its journal ends with its pod.
        shared_memory: None: tensors go by TCP.
    """

    model_type: Text | None = None
    epochs: Annotated[float | None, Field(gt=0, le=MOST_EPOCHS, allow_inf_nan=False)] = None
    scaling: Annotated[Scaling, Field(strict=False)] = Scaling.SCHEDULER
    mode: Annotated[JobMode, Field(strict=False)] = JobMode.PARAMETER_SERVERS
    workers: RoleSpec
    servers_given: Annotated[RoleSpec | None, Field(alias="servers")] = None
    block_replicas: Annotated[int, Field(ge=0, le=MOST_REPLICAS)] = 0
    checkpoint: Checkpoint | None = None
    suspend: bool = False
    gang_timeout: Annotated[Duration, KubernetesOnly()] = 300.0
    retry_limit: Annotated[int, Field(ge=0, le=_MOST_RETRIES)] = 3
    ttl_seconds_after_finished: Annotated[int | None, Field(ge=0, le=_LONGEST_TTL), KubernetesOnly()] = None
    coordinator: CoordinatorSpec | None = None
    shared_memory: SharedMemory | None = None

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if not self.workers.container.command:
            raise ValueError("workers need template.spec.containers[0].command: the training program")
        if not (self.model_type or self.workers.container.image):
            raise ValueError("a job needs modelType, or an image to name its type by")
        if self.epochs is None and self.scaling is Scaling.SCHEDULER:
            raise ValueError("epochs is missing: give it, so that policies know what remains, or scaling: Manual")
        if self.all_reduces:
            self._check_serverless()
            return self
        server = self.servers.container
        if server.command or server.args or server.working_dir:
            raise ValueError("servers run elastic_ps.server: leave command, args and workingDir of their template out")
        if self.block_replicas and self.servers.max < 2:
            raise ValueError("blockReplicas needs a second server: give servers a max from 2 on")
        return self

    def _check_serverless(self) -> None:
        given = {"servers": self.servers_given, "blockReplicas": self.block_replicas}
        for name, why in _NOT_WITHOUT_SERVERS.items():
            if given[name]:
                raise ValueError(f"{name} {why}")

    @property
    def servers(self) -> RoleSpec:
        """The servers of the job, as given or as they are by default; a job of mode all-reduce has none."""
        return _NO_SERVERS if self.all_reduces else self.servers_given or _USUAL_SERVERS

    @property
    def all_reduces(self) -> bool:
        """Return whether the job has no servers."""
        return self.mode is JobMode.ALL_REDUCE


class Metadata(DocumentPart):
    """`Metadata` name the job, and where it belongs.

    Attributes:
        name: the name of the job.
        namespace: the namespace of the job.
        labels: the labels of the job.
        annotations: the annotations of the job.
    """

    name: Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", max_length=_LONGEST_NAME)]
    namespace: Annotated[str | None, KubernetesOnly()] = None
    labels: Annotated[dict[str, str] | None, KubernetesOnly()] = None
    annotations: Annotated[dict[str, str] | None, KubernetesOnly()] = None


class ElasticJob(DocumentPart):
    """An `ElasticJob` is a whole document."""

    api_version: Literal["dl2.scheduler/v1alpha1"]
    kind: Literal["ElasticJob"]
    metadata: Metadata
    spec: Spec

    @property
    def model(self) -> str:
        """Type of the job."""
        return self.spec.model_type or self.spec.workers.container.image or ""

    def words(self, workers: int, servers: int) -> str:
        """Return counts of the job for people: of its servers only where it has some."""
        return f"{workers} workers" if self.spec.all_reduces else f"{workers} workers and {servers} servers"

    @property
    def notes(self) -> list[str]:
        """A sentence for each field given that only Kubernetes acts on."""
        return [*self.metadata.remarks("metadata"), *self.spec.remarks("spec")]

    def job(self, arrival: float, samples_per_epoch: float = UNKNOWN_SAMPLES) -> Job:
        """Return the job as policies see it.

        Args:
            arrival: seconds since the cluster began.
            samples_per_epoch: as the running job has told.

        Raises:
            BadInput: its epochs are not known.
        """
        spec = self.spec
        if spec.epochs is None:
            raise BadInput(f"{self.metadata.name} has no spec.epochs, which a policy needs: submit it again with them")
        job = Job(
            id=self.metadata.name,
            arrival=arrival,
            model=self.model,
            epochs=spec.epochs,
            samples_per_epoch=samples_per_epoch,
            worker={SLOTS: spec.workers.slots},
            server={SLOTS: spec.servers.slots},
            max_workers=spec.workers.max,
            max_servers=spec.servers.max,
            min_workers=spec.workers.min,
            min_servers=spec.servers.min,
        )
        return job.without_servers() if spec.all_reduces else job


def read_document(text: str) -> ElasticJob:
    """Read a document.

    Args:
        text: YAML, or JSON, which is YAML too.

    Raises:
        BadInput: with the path of every field that is wrong, and how to mend it.
    """
    found = read_yaml(text)
    if not isinstance(found, dict):
        raise BadInput(f"not an {KIND} document: begin with `apiVersion: {API_VERSION}`")
    try:
        document = ElasticJob.model_validate(found)
    except ValidationError as error:
        raise BadInput("; ".join(_say(detail) for detail in error.errors())) from error
    return document


_WANTED: Mapping[str, str] = {
    "string_pattern_mismatch": "give lower-case letters, digits and -, as Kubernetes wants names",
    "tuple_type": "give a list, as in [python, train.py]",
    "string_type": "give text; a number that is text stands in quotes",
    "model_type": "give fields below it",
    "invalid_key": "give a field's name",
}


_shown = reprlib.Repr()
_shown.maxstring = _shown.maxlong = _shown.maxother = 100


def _say(detail: ErrorDetails) -> str:
    """Return one error in words for the reader of the document."""
    where, kind = ".".join(map(str, detail["loc"])), detail["type"]
    if kind == "extra_forbidden":
        return f"{where}: unknown, or not implemented yet: leave it out (docs/reference/cluster.md lists the fields)"
    if kind == "missing":
        return f"{where}: missing: give it (docs/reference/cluster.md has an example)"
    if kind == "value_error":
        return f"{where}: {detail['ctx']['error']}"
    return f"{where} is {_shown.repr(detail['input'])}: {_WANTED.get(kind) or detail['msg']}"
