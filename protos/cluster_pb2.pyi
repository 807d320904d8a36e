from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SubmitRequest(_message.Message):
    __slots__ = ("document", "folder", "dry_run")
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    document: str
    folder: str
    dry_run: bool
    def __init__(self, document: _Optional[str] = ..., folder: _Optional[str] = ..., dry_run: _Optional[bool] = ...) -> None: ...

class SubmitReply(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: str
    def __init__(self, job: _Optional[str] = ...) -> None: ...

class JobsRequest(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: str
    def __init__(self, job: _Optional[str] = ...) -> None: ...

class JobStatus(_message.Message):
    __slots__ = ("name", "model", "phase", "reason", "workers", "servers", "max_workers", "max_servers", "epochs_done", "epochs", "samples_per_second", "submitted", "ended", "log", "min_workers", "min_servers", "held", "forecast")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    SERVERS_FIELD_NUMBER: _ClassVar[int]
    MAX_WORKERS_FIELD_NUMBER: _ClassVar[int]
    MAX_SERVERS_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_DONE_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    MIN_WORKERS_FIELD_NUMBER: _ClassVar[int]
    MIN_SERVERS_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    FORECAST_FIELD_NUMBER: _ClassVar[int]
    name: str
    model: str
    phase: str
    reason: str
    workers: int
    servers: int
    max_workers: int
    max_servers: int
    epochs_done: float
    epochs: float
    samples_per_second: float
    submitted: float
    ended: float
    log: str
    min_workers: int
    min_servers: int
    held: bool
    forecast: Forecast
    def __init__(self, name: _Optional[str] = ..., model: _Optional[str] = ..., phase: _Optional[str] = ..., reason: _Optional[str] = ..., workers: _Optional[int] = ..., servers: _Optional[int] = ..., max_workers: _Optional[int] = ..., max_servers: _Optional[int] = ..., epochs_done: _Optional[float] = ..., epochs: _Optional[float] = ..., samples_per_second: _Optional[float] = ..., submitted: _Optional[float] = ..., ended: _Optional[float] = ..., log: _Optional[str] = ..., min_workers: _Optional[int] = ..., min_servers: _Optional[int] = ..., held: _Optional[bool] = ..., forecast: _Optional[_Union[Forecast, _Mapping]] = ...) -> None: ...

class Forecast(_message.Message):
    __slots__ = ("made", "start", "end")
    MADE_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    made: float
    start: ExpectedTime
    end: ExpectedTime
    def __init__(self, made: _Optional[float] = ..., start: _Optional[_Union[ExpectedTime, _Mapping]] = ..., end: _Optional[_Union[ExpectedTime, _Mapping]] = ...) -> None: ...

class ExpectedTime(_message.Message):
    __slots__ = ("at", "low", "high")
    AT_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    at: float
    low: float
    high: float
    def __init__(self, at: _Optional[float] = ..., low: _Optional[float] = ..., high: _Optional[float] = ...) -> None: ...

class JobsReply(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobStatus]
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobStatus, _Mapping]]] = ...) -> None: ...

class WhyRequest(_message.Message):
    __slots__ = ("job", "most")
    JOB_FIELD_NUMBER: _ClassVar[int]
    MOST_FIELD_NUMBER: _ClassVar[int]
    job: str
    most: int
    def __init__(self, job: _Optional[str] = ..., most: _Optional[int] = ...) -> None: ...

class Decision(_message.Message):
    __slots__ = ("slot", "at", "policy", "workers_before", "servers_before", "workers", "servers", "reason", "happened", "shadow", "under_way")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    WORKERS_BEFORE_FIELD_NUMBER: _ClassVar[int]
    SERVERS_BEFORE_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    SERVERS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    HAPPENED_FIELD_NUMBER: _ClassVar[int]
    SHADOW_FIELD_NUMBER: _ClassVar[int]
    UNDER_WAY_FIELD_NUMBER: _ClassVar[int]
    slot: int
    at: float
    policy: str
    workers_before: int
    servers_before: int
    workers: int
    servers: int
    reason: str
    happened: Happened
    shadow: Shadowed
    under_way: bool
    def __init__(self, slot: _Optional[int] = ..., at: _Optional[float] = ..., policy: _Optional[str] = ..., workers_before: _Optional[int] = ..., servers_before: _Optional[int] = ..., workers: _Optional[int] = ..., servers: _Optional[int] = ..., reason: _Optional[str] = ..., happened: _Optional[_Union[Happened, _Mapping]] = ..., shadow: _Optional[_Union[Shadowed, _Mapping]] = ..., under_way: _Optional[bool] = ...) -> None: ...

class Shadowed(_message.Message):
    __slots__ = ("policy", "workers", "servers")
    POLICY_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    SERVERS_FIELD_NUMBER: _ClassVar[int]
    policy: str
    workers: int
    servers: int
    def __init__(self, policy: _Optional[str] = ..., workers: _Optional[int] = ..., servers: _Optional[int] = ...) -> None: ...

class Happened(_message.Message):
    __slots__ = ("workers", "servers", "epochs", "note")
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    SERVERS_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    workers: int
    servers: int
    epochs: float
    note: str
    def __init__(self, workers: _Optional[int] = ..., servers: _Optional[int] = ..., epochs: _Optional[float] = ..., note: _Optional[str] = ...) -> None: ...

class WhyReply(_message.Message):
    __slots__ = ("decisions",)
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    decisions: _containers.RepeatedCompositeFieldContainer[Decision]
    def __init__(self, decisions: _Optional[_Iterable[_Union[Decision, _Mapping]]] = ...) -> None: ...

class StopJobRequest(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: str
    def __init__(self, job: _Optional[str] = ...) -> None: ...

class StopJobReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class HoldRequest(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: str
    def __init__(self, job: _Optional[str] = ...) -> None: ...

class HoldReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReleaseRequest(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: str
    def __init__(self, job: _Optional[str] = ...) -> None: ...

class ReleaseReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ScaleJobRequest(_message.Message):
    __slots__ = ("job", "workers", "servers")
    JOB_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    SERVERS_FIELD_NUMBER: _ClassVar[int]
    job: str
    workers: int
    servers: int
    def __init__(self, job: _Optional[str] = ..., workers: _Optional[int] = ..., servers: _Optional[int] = ...) -> None: ...

class ScaleJobReply(_message.Message):
    __slots__ = ("workers", "servers")
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    SERVERS_FIELD_NUMBER: _ClassVar[int]
    workers: int
    servers: int
    def __init__(self, workers: _Optional[int] = ..., servers: _Optional[int] = ...) -> None: ...

class TopRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class NodeLoad(_message.Message):
    __slots__ = ("name", "capacity", "used")
    class CapacityEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class UsedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    name: str
    capacity: _containers.ScalarMap[str, float]
    used: _containers.ScalarMap[str, float]
    def __init__(self, name: _Optional[str] = ..., capacity: _Optional[_Mapping[str, float]] = ..., used: _Optional[_Mapping[str, float]] = ...) -> None: ...

class TaskLoad(_message.Message):
    __slots__ = ("job", "task", "node", "cores", "limit_cores", "memory_bytes")
    JOB_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    CORES_FIELD_NUMBER: _ClassVar[int]
    LIMIT_CORES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    job: str
    task: str
    node: str
    cores: float
    limit_cores: float
    memory_bytes: int
    def __init__(self, job: _Optional[str] = ..., task: _Optional[str] = ..., node: _Optional[str] = ..., cores: _Optional[float] = ..., limit_cores: _Optional[float] = ..., memory_bytes: _Optional[int] = ...) -> None: ...

class TopReply(_message.Message):
    __slots__ = ("nodes", "tasks", "isolation", "slot_seconds")
    NODES_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    ISOLATION_FIELD_NUMBER: _ClassVar[int]
    SLOT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[NodeLoad]
    tasks: _containers.RepeatedCompositeFieldContainer[TaskLoad]
    isolation: str
    slot_seconds: float
    def __init__(self, nodes: _Optional[_Iterable[_Union[NodeLoad, _Mapping]]] = ..., tasks: _Optional[_Iterable[_Union[TaskLoad, _Mapping]]] = ..., isolation: _Optional[str] = ..., slot_seconds: _Optional[float] = ...) -> None: ...

class UsePolicyRequest(_message.Message):
    __slots__ = ("policy", "shadow")
    POLICY_FIELD_NUMBER: _ClassVar[int]
    SHADOW_FIELD_NUMBER: _ClassVar[int]
    policy: str
    shadow: bool
    def __init__(self, policy: _Optional[str] = ..., shadow: _Optional[bool] = ...) -> None: ...

class UsePolicyReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PoliciesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PoliciesReply(_message.Message):
    __slots__ = ("policy", "deciding", "shadow", "guard", "shadow_agreement", "updates", "comparison", "learning", "refitting", "exploration", "sharing", "stands_in")
    POLICY_FIELD_NUMBER: _ClassVar[int]
    DECIDING_FIELD_NUMBER: _ClassVar[int]
    SHADOW_FIELD_NUMBER: _ClassVar[int]
    GUARD_FIELD_NUMBER: _ClassVar[int]
    SHADOW_AGREEMENT_FIELD_NUMBER: _ClassVar[int]
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    COMPARISON_FIELD_NUMBER: _ClassVar[int]
    LEARNING_FIELD_NUMBER: _ClassVar[int]
    REFITTING_FIELD_NUMBER: _ClassVar[int]
    EXPLORATION_FIELD_NUMBER: _ClassVar[int]
    SHARING_FIELD_NUMBER: _ClassVar[int]
    STANDS_IN_FIELD_NUMBER: _ClassVar[int]
    policy: str
    deciding: str
    shadow: str
    guard: str
    shadow_agreement: float
    updates: int
    comparison: str
    learning: str
    refitting: str
    exploration: str
    sharing: str
    stands_in: str
    def __init__(self, policy: _Optional[str] = ..., deciding: _Optional[str] = ..., shadow: _Optional[str] = ..., guard: _Optional[str] = ..., shadow_agreement: _Optional[float] = ..., updates: _Optional[int] = ..., comparison: _Optional[str] = ..., learning: _Optional[str] = ..., refitting: _Optional[str] = ..., exploration: _Optional[str] = ..., sharing: _Optional[str] = ..., stands_in: _Optional[str] = ...) -> None: ...
