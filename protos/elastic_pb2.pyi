from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Role(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROLE_UNSPECIFIED: _ClassVar[Role]
    WORKER: _ClassVar[Role]
    SERVER: _ClassVar[Role]

class RequestKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REQUEST_KIND_UNSPECIFIED: _ClassVar[RequestKind]
    INC_WORKER: _ClassVar[RequestKind]
    INC_SERVER: _ClassVar[RequestKind]
    DEC_WORKER: _ClassVar[RequestKind]
    DEC_SERVER: _ClassVar[RequestKind]

class MigrationMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LIVE: _ClassVar[MigrationMode]
    PAUSE: _ClassVar[MigrationMode]

class Answer(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ANSWER_UNSPECIFIED: _ClassVar[Answer]
    PREPARED: _ClassVar[Answer]
    SYNCED: _ClassVar[Answer]
    ARMED: _ClassVar[Answer]
    LATE: _ClassVar[Answer]
    SWITCHED: _ClassVar[Answer]
    EXTENDED: _ClassVar[Answer]
    SAVED: _ClassVar[Answer]
    CANCELLED: _ClassVar[Answer]
    COMMANDED: _ClassVar[Answer]
    ARRIVED: _ClassVar[Answer]
    UNREADABLE: _ClassVar[Answer]
    UNREAD: _ClassVar[Answer]
    TRIED: _ClassVar[Answer]
    BROKEN: _ClassVar[Answer]
    FOLLOWED: _ClassVar[Answer]
ROLE_UNSPECIFIED: Role
WORKER: Role
SERVER: Role
REQUEST_KIND_UNSPECIFIED: RequestKind
INC_WORKER: RequestKind
INC_SERVER: RequestKind
DEC_WORKER: RequestKind
DEC_SERVER: RequestKind
LIVE: MigrationMode
PAUSE: MigrationMode
ANSWER_UNSPECIFIED: Answer
PREPARED: Answer
SYNCED: Answer
ARMED: Answer
LATE: Answer
SWITCHED: Answer
EXTENDED: Answer
SAVED: Answer
CANCELLED: Answer
COMMANDED: Answer
ARRIVED: Answer
UNREADABLE: Answer
UNREAD: Answer
TRIED: Answer
BROKEN: Answer
FOLLOWED: Answer

class ConfigId(_message.Message):
    __slots__ = ("term", "number")
    TERM_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    term: int
    number: int
    def __init__(self, term: _Optional[int] = ..., number: _Optional[int] = ...) -> None: ...

class Member(_message.Message):
    __slots__ = ("id", "role", "host", "port", "machine")
    ID_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    id: str
    role: Role
    host: str
    port: int
    machine: str
    def __init__(self, id: _Optional[str] = ..., role: _Optional[_Union[Role, str]] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., machine: _Optional[str] = ...) -> None: ...

class Tensor(_message.Message):
    __slots__ = ("store", "key", "shape", "dtype", "auxiliary", "divisible")
    STORE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    AUXILIARY_FIELD_NUMBER: _ClassVar[int]
    DIVISIBLE_FIELD_NUMBER: _ClassVar[int]
    store: int
    key: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    dtype: str
    auxiliary: bool
    divisible: bool
    def __init__(self, store: _Optional[int] = ..., key: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ..., dtype: _Optional[str] = ..., auxiliary: _Optional[bool] = ..., divisible: _Optional[bool] = ...) -> None: ...

class Configuration(_message.Message):
    __slots__ = ("id", "workers", "servers", "assignment", "followers")
    ID_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    SERVERS_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    FOLLOWERS_FIELD_NUMBER: _ClassVar[int]
    id: ConfigId
    workers: _containers.RepeatedCompositeFieldContainer[Member]
    servers: _containers.RepeatedCompositeFieldContainer[Member]
    assignment: _containers.RepeatedScalarFieldContainer[int]
    followers: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, id: _Optional[_Union[ConfigId, _Mapping]] = ..., workers: _Optional[_Iterable[_Union[Member, _Mapping]]] = ..., servers: _Optional[_Iterable[_Union[Member, _Mapping]]] = ..., assignment: _Optional[_Iterable[int]] = ..., followers: _Optional[_Iterable[int]] = ...) -> None: ...

class GreetRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GreetReply(_message.Message):
    __slots__ = ("nonce", "proof")
    NONCE_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    nonce: bytes
    proof: bytes
    def __init__(self, nonce: _Optional[bytes] = ..., proof: _Optional[bytes] = ...) -> None: ...

class Caller(_message.Message):
    __slots__ = ("term", "node")
    TERM_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    term: int
    node: str
    def __init__(self, term: _Optional[int] = ..., node: _Optional[str] = ...) -> None: ...

class RegisterRequest(_message.Message):
    __slots__ = ("caller", "kind", "host", "port", "pid", "nonce", "machine", "modules")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    MODULES_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    kind: RequestKind
    host: str
    port: int
    pid: int
    nonce: str
    machine: str
    modules: _containers.RepeatedCompositeFieldContainer[ModuleFile]
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., kind: _Optional[_Union[RequestKind, str]] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., pid: _Optional[int] = ..., nonce: _Optional[str] = ..., machine: _Optional[str] = ..., modules: _Optional[_Iterable[_Union[ModuleFile, _Mapping]]] = ...) -> None: ...

class ModuleFile(_message.Message):
    __slots__ = ("name", "path", "digest")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    name: str
    path: str
    digest: str
    def __init__(self, name: _Optional[str] = ..., path: _Optional[str] = ..., digest: _Optional[str] = ...) -> None: ...

class RegisterReply(_message.Message):
    __slots__ = ("node", "term", "lease_seconds", "block_bytes", "seed", "started")
    NODE_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    LEASE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_BYTES_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    node: str
    term: int
    lease_seconds: float
    block_bytes: int
    seed: int
    started: bool
    def __init__(self, node: _Optional[str] = ..., term: _Optional[int] = ..., lease_seconds: _Optional[float] = ..., block_bytes: _Optional[int] = ..., seed: _Optional[int] = ..., started: _Optional[bool] = ...) -> None: ...

class ListenRequest(_message.Message):
    __slots__ = ("caller", "introduction", "version")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    INTRODUCTION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    introduction: Introduction
    version: int
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., introduction: _Optional[_Union[Introduction, _Mapping]] = ..., version: _Optional[int] = ...) -> None: ...

class Introduction(_message.Message):
    __slots__ = ("role", "host", "port", "pid", "nonce", "current", "prepared", "clock", "paused", "dead", "cancelled", "tensors", "optimizers", "data", "local_update", "seed", "block_bytes", "plan", "barrier_place", "barrier_number", "barred", "leaving", "identity", "begun", "synced", "promoted", "before", "undecided", "machine", "modules", "saves", "since")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    CURRENT_FIELD_NUMBER: _ClassVar[int]
    PREPARED_FIELD_NUMBER: _ClassVar[int]
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    OPTIMIZERS_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    LOCAL_UPDATE_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    BLOCK_BYTES_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    BARRIER_PLACE_FIELD_NUMBER: _ClassVar[int]
    BARRIER_NUMBER_FIELD_NUMBER: _ClassVar[int]
    BARRED_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    BEGUN_FIELD_NUMBER: _ClassVar[int]
    SYNCED_FIELD_NUMBER: _ClassVar[int]
    PROMOTED_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    UNDECIDED_FIELD_NUMBER: _ClassVar[int]
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    MODULES_FIELD_NUMBER: _ClassVar[int]
    SAVES_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    role: Role
    host: str
    port: int
    pid: int
    nonce: str
    current: Configuration
    prepared: Configuration
    clock: int
    paused: bool
    dead: _containers.RepeatedScalarFieldContainer[str]
    cancelled: ConfigId
    tensors: _containers.RepeatedCompositeFieldContainer[Tensor]
    optimizers: _containers.RepeatedScalarFieldContainer[str]
    data: DataSpec
    local_update: bool
    seed: int
    block_bytes: int
    plan: int
    barrier_place: int
    barrier_number: int
    barred: bool
    leaving: bool
    identity: str
    begun: str
    synced: ConfigId
    promoted: _containers.RepeatedScalarFieldContainer[int]
    before: Configuration
    undecided: bool
    machine: str
    modules: _containers.RepeatedCompositeFieldContainer[ModuleFile]
    saves: int
    since: float
    def __init__(self, role: _Optional[_Union[Role, str]] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., pid: _Optional[int] = ..., nonce: _Optional[str] = ..., current: _Optional[_Union[Configuration, _Mapping]] = ..., prepared: _Optional[_Union[Configuration, _Mapping]] = ..., clock: _Optional[int] = ..., paused: _Optional[bool] = ..., dead: _Optional[_Iterable[str]] = ..., cancelled: _Optional[_Union[ConfigId, _Mapping]] = ..., tensors: _Optional[_Iterable[_Union[Tensor, _Mapping]]] = ..., optimizers: _Optional[_Iterable[str]] = ..., data: _Optional[_Union[DataSpec, _Mapping]] = ..., local_update: _Optional[bool] = ..., seed: _Optional[int] = ..., block_bytes: _Optional[int] = ..., plan: _Optional[int] = ..., barrier_place: _Optional[int] = ..., barrier_number: _Optional[int] = ..., barred: _Optional[bool] = ..., leaving: _Optional[bool] = ..., identity: _Optional[str] = ..., begun: _Optional[str] = ..., synced: _Optional[_Union[ConfigId, _Mapping]] = ..., promoted: _Optional[_Iterable[int]] = ..., before: _Optional[_Union[Configuration, _Mapping]] = ..., undecided: _Optional[bool] = ..., machine: _Optional[str] = ..., modules: _Optional[_Iterable[_Union[ModuleFile, _Mapping]]] = ..., saves: _Optional[int] = ..., since: _Optional[float] = ...) -> None: ...

class Directive(_message.Message):
    __slots__ = ("term", "plan", "prepare", "arm", "adopt", "cancel", "committed", "resume", "extend", "save", "stop", "command", "welcome", "trial")
    TERM_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    PREPARE_FIELD_NUMBER: _ClassVar[int]
    ARM_FIELD_NUMBER: _ClassVar[int]
    ADOPT_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    EXTEND_FIELD_NUMBER: _ClassVar[int]
    SAVE_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    term: int
    plan: int
    prepare: Prepare
    arm: Arm
    adopt: Adopt
    cancel: CancelPlan
    committed: Committed
    resume: Resume
    extend: Extend
    save: Save
    stop: Stop
    command: ServerCommand
    welcome: Welcome
    trial: Trial
    def __init__(self, term: _Optional[int] = ..., plan: _Optional[int] = ..., prepare: _Optional[_Union[Prepare, _Mapping]] = ..., arm: _Optional[_Union[Arm, _Mapping]] = ..., adopt: _Optional[_Union[Adopt, _Mapping]] = ..., cancel: _Optional[_Union[CancelPlan, _Mapping]] = ..., committed: _Optional[_Union[Committed, _Mapping]] = ..., resume: _Optional[_Union[Resume, _Mapping]] = ..., extend: _Optional[_Union[Extend, _Mapping]] = ..., save: _Optional[_Union[Save, _Mapping]] = ..., stop: _Optional[_Union[Stop, _Mapping]] = ..., command: _Optional[_Union[ServerCommand, _Mapping]] = ..., welcome: _Optional[_Union[Welcome, _Mapping]] = ..., trial: _Optional[_Union[Trial, _Mapping]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("configuration", "tensors", "optimizers", "data", "identity", "begun", "saves", "since")
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    OPTIMIZERS_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    BEGUN_FIELD_NUMBER: _ClassVar[int]
    SAVES_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    configuration: Configuration
    tensors: _containers.RepeatedCompositeFieldContainer[Tensor]
    optimizers: _containers.RepeatedScalarFieldContainer[str]
    data: DataSpec
    identity: str
    begun: str
    saves: int
    since: float
    def __init__(self, configuration: _Optional[_Union[Configuration, _Mapping]] = ..., tensors: _Optional[_Iterable[_Union[Tensor, _Mapping]]] = ..., optimizers: _Optional[_Iterable[str]] = ..., data: _Optional[_Union[DataSpec, _Mapping]] = ..., identity: _Optional[str] = ..., begun: _Optional[str] = ..., saves: _Optional[int] = ..., since: _Optional[float] = ...) -> None: ...

class Prepare(_message.Message):
    __slots__ = ("configuration", "mode", "dead", "restore", "undecided")
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    RESTORE_FIELD_NUMBER: _ClassVar[int]
    UNDECIDED_FIELD_NUMBER: _ClassVar[int]
    configuration: Configuration
    mode: MigrationMode
    dead: _containers.RepeatedScalarFieldContainer[str]
    restore: str
    undecided: bool
    def __init__(self, configuration: _Optional[_Union[Configuration, _Mapping]] = ..., mode: _Optional[_Union[MigrationMode, str]] = ..., dead: _Optional[_Iterable[str]] = ..., restore: _Optional[str] = ..., undecided: _Optional[bool] = ...) -> None: ...

class Arm(_message.Message):
    __slots__ = ("configuration", "clock")
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    configuration: ConfigId
    clock: int
    def __init__(self, configuration: _Optional[_Union[ConfigId, _Mapping]] = ..., clock: _Optional[int] = ...) -> None: ...

class Adopt(_message.Message):
    __slots__ = ("configuration", "decided", "promoted")
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    DECIDED_FIELD_NUMBER: _ClassVar[int]
    PROMOTED_FIELD_NUMBER: _ClassVar[int]
    configuration: ConfigId
    decided: Configuration
    promoted: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, configuration: _Optional[_Union[ConfigId, _Mapping]] = ..., decided: _Optional[_Union[Configuration, _Mapping]] = ..., promoted: _Optional[_Iterable[int]] = ...) -> None: ...

class CancelPlan(_message.Message):
    __slots__ = ("configuration", "reason", "leave")
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    LEAVE_FIELD_NUMBER: _ClassVar[int]
    configuration: ConfigId
    reason: str
    leave: bool
    def __init__(self, configuration: _Optional[_Union[ConfigId, _Mapping]] = ..., reason: _Optional[str] = ..., leave: _Optional[bool] = ...) -> None: ...

class Committed(_message.Message):
    __slots__ = ("configuration",)
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    configuration: ConfigId
    def __init__(self, configuration: _Optional[_Union[ConfigId, _Mapping]] = ...) -> None: ...

class Resume(_message.Message):
    __slots__ = ("configuration",)
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    configuration: ConfigId
    def __init__(self, configuration: _Optional[_Union[ConfigId, _Mapping]] = ...) -> None: ...

class Extend(_message.Message):
    __slots__ = ("tensors", "assignment", "optimizers", "data", "followers", "configuration", "growth")
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    OPTIMIZERS_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    FOLLOWERS_FIELD_NUMBER: _ClassVar[int]
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    GROWTH_FIELD_NUMBER: _ClassVar[int]
    tensors: _containers.RepeatedCompositeFieldContainer[Tensor]
    assignment: _containers.RepeatedScalarFieldContainer[int]
    optimizers: _containers.RepeatedScalarFieldContainer[str]
    data: DataSpec
    followers: _containers.RepeatedScalarFieldContainer[int]
    configuration: ConfigId
    growth: int
    def __init__(self, tensors: _Optional[_Iterable[_Union[Tensor, _Mapping]]] = ..., assignment: _Optional[_Iterable[int]] = ..., optimizers: _Optional[_Iterable[str]] = ..., data: _Optional[_Union[DataSpec, _Mapping]] = ..., followers: _Optional[_Iterable[int]] = ..., configuration: _Optional[_Union[ConfigId, _Mapping]] = ..., growth: _Optional[int] = ...) -> None: ...

class Trial(_message.Message):
    __slots__ = ("optimizer", "dtypes")
    OPTIMIZER_FIELD_NUMBER: _ClassVar[int]
    DTYPES_FIELD_NUMBER: _ClassVar[int]
    optimizer: str
    dtypes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, optimizer: _Optional[str] = ..., dtypes: _Optional[_Iterable[str]] = ...) -> None: ...

class Save(_message.Message):
    __slots__ = ("clock", "url", "given_up")
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    GIVEN_UP_FIELD_NUMBER: _ClassVar[int]
    clock: int
    url: str
    given_up: str
    def __init__(self, clock: _Optional[int] = ..., url: _Optional[str] = ..., given_up: _Optional[str] = ...) -> None: ...

class Stop(_message.Message):
    __slots__ = ("reason", "restart", "failed")
    REASON_FIELD_NUMBER: _ClassVar[int]
    RESTART_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    reason: str
    restart: bool
    failed: bool
    def __init__(self, reason: _Optional[str] = ..., restart: _Optional[bool] = ..., failed: _Optional[bool] = ...) -> None: ...

class ServerCommand(_message.Message):
    __slots__ = ("id", "head", "body")
    ID_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    id: int
    head: int
    body: str
    def __init__(self, id: _Optional[int] = ..., head: _Optional[int] = ..., body: _Optional[str] = ...) -> None: ...

class Holding(_message.Message):
    __slots__ = ("kind", "version", "runs")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[Holding.Kind]
        SEEN: _ClassVar[Holding.Kind]
        OWNED: _ClassVar[Holding.Kind]
        LEAVING: _ClassVar[Holding.Kind]
        COPY: _ClassVar[Holding.Kind]
        FROZEN: _ClassVar[Holding.Kind]
    KIND_UNSPECIFIED: Holding.Kind
    SEEN: Holding.Kind
    OWNED: Holding.Kind
    LEAVING: Holding.Kind
    COPY: Holding.Kind
    FROZEN: Holding.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    kind: Holding.Kind
    version: int
    runs: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, kind: _Optional[_Union[Holding.Kind, str]] = ..., version: _Optional[int] = ..., runs: _Optional[_Iterable[int]] = ...) -> None: ...

class AcknowledgeRequest(_message.Message):
    __slots__ = ("caller", "answer", "configuration", "version", "suspension_ms", "bytes_moved", "detail", "command", "optimizer", "holdings", "growth")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SUSPENSION_MS_FIELD_NUMBER: _ClassVar[int]
    BYTES_MOVED_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    OPTIMIZER_FIELD_NUMBER: _ClassVar[int]
    HOLDINGS_FIELD_NUMBER: _ClassVar[int]
    GROWTH_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    answer: Answer
    configuration: ConfigId
    version: int
    suspension_ms: float
    bytes_moved: int
    detail: str
    command: int
    optimizer: str
    holdings: _containers.RepeatedCompositeFieldContainer[Holding]
    growth: int
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., answer: _Optional[_Union[Answer, str]] = ..., configuration: _Optional[_Union[ConfigId, _Mapping]] = ..., version: _Optional[int] = ..., suspension_ms: _Optional[float] = ..., bytes_moved: _Optional[int] = ..., detail: _Optional[str] = ..., command: _Optional[int] = ..., optimizer: _Optional[str] = ..., holdings: _Optional[_Iterable[_Union[Holding, _Mapping]]] = ..., growth: _Optional[int] = ...) -> None: ...

class AcknowledgeReply(_message.Message):
    __slots__ = ("term",)
    TERM_FIELD_NUMBER: _ClassVar[int]
    term: int
    def __init__(self, term: _Optional[int] = ...) -> None: ...

class DataSpec(_message.Message):
    __slots__ = ("elastic", "samples", "global_batch", "last", "loss", "exchanges", "consistency", "staleness", "order")
    ELASTIC_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_BATCH_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    EXCHANGES_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_FIELD_NUMBER: _ClassVar[int]
    STALENESS_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    elastic: bool
    samples: int
    global_batch: int
    last: str
    loss: str
    exchanges: int
    consistency: str
    staleness: int
    order: str
    def __init__(self, elastic: _Optional[bool] = ..., samples: _Optional[int] = ..., global_batch: _Optional[int] = ..., last: _Optional[str] = ..., loss: _Optional[str] = ..., exchanges: _Optional[int] = ..., consistency: _Optional[str] = ..., staleness: _Optional[int] = ..., order: _Optional[str] = ...) -> None: ...

class DeclareRequest(_message.Message):
    __slots__ = ("caller", "tensors", "store", "optimizer", "data", "local_update")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    OPTIMIZER_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    LOCAL_UPDATE_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    tensors: _containers.RepeatedCompositeFieldContainer[Tensor]
    store: int
    optimizer: str
    data: DataSpec
    local_update: bool
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., tensors: _Optional[_Iterable[_Union[Tensor, _Mapping]]] = ..., store: _Optional[int] = ..., optimizer: _Optional[str] = ..., data: _Optional[_Union[DataSpec, _Mapping]] = ..., local_update: _Optional[bool] = ...) -> None: ...

class DeclareReply(_message.Message):
    __slots__ = ("term", "tensors", "assignment", "optimizers", "warnings")
    TERM_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    OPTIMIZERS_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    term: int
    tensors: _containers.RepeatedCompositeFieldContainer[Tensor]
    assignment: _containers.RepeatedScalarFieldContainer[int]
    optimizers: _containers.RepeatedScalarFieldContainer[str]
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, term: _Optional[int] = ..., tensors: _Optional[_Iterable[_Union[Tensor, _Mapping]]] = ..., assignment: _Optional[_Iterable[int]] = ..., optimizers: _Optional[_Iterable[str]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class StepTime(_message.Message):
    __slots__ = ("version", "end", "seconds", "samples")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    version: int
    end: float
    seconds: float
    samples: int
    def __init__(self, version: _Optional[int] = ..., end: _Optional[float] = ..., seconds: _Optional[float] = ..., samples: _Optional[int] = ...) -> None: ...

class LedgerEntry(_message.Message):
    __slots__ = ("server", "term", "number", "version", "runs", "epoch", "step", "exchange", "slices", "voided", "sequence")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_FIELD_NUMBER: _ClassVar[int]
    SLICES_FIELD_NUMBER: _ClassVar[int]
    VOIDED_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    server: str
    term: int
    number: int
    version: int
    runs: _containers.RepeatedScalarFieldContainer[int]
    epoch: int
    step: int
    exchange: int
    slices: _containers.RepeatedCompositeFieldContainer[Slice]
    voided: bool
    sequence: int
    def __init__(self, server: _Optional[str] = ..., term: _Optional[int] = ..., number: _Optional[int] = ..., version: _Optional[int] = ..., runs: _Optional[_Iterable[int]] = ..., epoch: _Optional[int] = ..., step: _Optional[int] = ..., exchange: _Optional[int] = ..., slices: _Optional[_Iterable[_Union[Slice, _Mapping]]] = ..., voided: _Optional[bool] = ..., sequence: _Optional[int] = ...) -> None: ...

class Slice(_message.Message):
    __slots__ = ("worker", "low", "high")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    worker: str
    low: int
    high: int
    def __init__(self, worker: _Optional[str] = ..., low: _Optional[int] = ..., high: _Optional[int] = ...) -> None: ...

class ReportRequest(_message.Message):
    __slots__ = ("caller", "version", "step_seconds", "rtt_seconds", "rate", "metrics", "steps", "ledger", "ledger_sequence", "bytes", "finished", "exchanging", "transports", "waits", "ledger_of", "place", "copied", "group", "attempt")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class TransportsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CALLER_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STEP_SECONDS_FIELD_NUMBER: _ClassVar[int]
    RTT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    RATE_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    LEDGER_FIELD_NUMBER: _ClassVar[int]
    LEDGER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    EXCHANGING_FIELD_NUMBER: _ClassVar[int]
    TRANSPORTS_FIELD_NUMBER: _ClassVar[int]
    WAITS_FIELD_NUMBER: _ClassVar[int]
    LEDGER_OF_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    COPIED_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    version: int
    step_seconds: float
    rtt_seconds: float
    rate: float
    metrics: _containers.ScalarMap[str, float]
    steps: _containers.RepeatedCompositeFieldContainer[StepTime]
    ledger: _containers.RepeatedCompositeFieldContainer[LedgerEntry]
    ledger_sequence: int
    bytes: int
    finished: bool
    exchanging: bool
    transports: _containers.ScalarMap[str, str]
    waits: _containers.RepeatedCompositeFieldContainer[Wait]
    ledger_of: str
    place: int
    copied: int
    group: ConfigId
    attempt: int
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., version: _Optional[int] = ..., step_seconds: _Optional[float] = ..., rtt_seconds: _Optional[float] = ..., rate: _Optional[float] = ..., metrics: _Optional[_Mapping[str, float]] = ..., steps: _Optional[_Iterable[_Union[StepTime, _Mapping]]] = ..., ledger: _Optional[_Iterable[_Union[LedgerEntry, _Mapping]]] = ..., ledger_sequence: _Optional[int] = ..., bytes: _Optional[int] = ..., finished: _Optional[bool] = ..., exchanging: _Optional[bool] = ..., transports: _Optional[_Mapping[str, str]] = ..., waits: _Optional[_Iterable[_Union[Wait, _Mapping]]] = ..., ledger_of: _Optional[str] = ..., place: _Optional[int] = ..., copied: _Optional[int] = ..., group: _Optional[_Union[ConfigId, _Mapping]] = ..., attempt: _Optional[int] = ...) -> None: ...

class Wait(_message.Message):
    __slots__ = ("peer", "what", "seconds", "unreachable")
    PEER_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    UNREACHABLE_FIELD_NUMBER: _ClassVar[int]
    peer: str
    what: str
    seconds: float
    unreachable: bool
    def __init__(self, peer: _Optional[str] = ..., what: _Optional[str] = ..., seconds: _Optional[float] = ..., unreachable: _Optional[bool] = ...) -> None: ...

class ReportReply(_message.Message):
    __slots__ = ("term", "ledger_kept", "group", "attempt")
    TERM_FIELD_NUMBER: _ClassVar[int]
    LEDGER_KEPT_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    term: int
    ledger_kept: int
    group: ConfigId
    attempt: int
    def __init__(self, term: _Optional[int] = ..., ledger_kept: _Optional[int] = ..., group: _Optional[_Union[ConfigId, _Mapping]] = ..., attempt: _Optional[int] = ...) -> None: ...

class DrawRequest(_message.Message):
    __slots__ = ("caller", "number", "epoch", "any_epoch")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ANY_EPOCH_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    number: int
    epoch: int
    any_epoch: bool
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., number: _Optional[int] = ..., epoch: _Optional[int] = ..., any_epoch: _Optional[bool] = ...) -> None: ...

class DrawReply(_message.Message):
    __slots__ = ("term", "epoch", "over", "step", "origin", "batch")
    TERM_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    OVER_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    term: int
    epoch: int
    over: bool
    step: int
    origin: str
    batch: int
    def __init__(self, term: _Optional[int] = ..., epoch: _Optional[int] = ..., over: _Optional[bool] = ..., step: _Optional[int] = ..., origin: _Optional[str] = ..., batch: _Optional[int] = ...) -> None: ...

class BarrierRequest(_message.Message):
    __slots__ = ("caller", "place", "number", "sharing", "version")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    SHARING_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    place: int
    number: int
    sharing: _containers.RepeatedScalarFieldContainer[str]
    version: int
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., place: _Optional[int] = ..., number: _Optional[int] = ..., sharing: _Optional[_Iterable[str]] = ..., version: _Optional[int] = ...) -> None: ...

class BarrierReply(_message.Message):
    __slots__ = ("term",)
    TERM_FIELD_NUMBER: _ClassVar[int]
    term: int
    def __init__(self, term: _Optional[int] = ...) -> None: ...

class CommandRequest(_message.Message):
    __slots__ = ("caller", "head", "body", "id")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    head: int
    body: str
    id: int
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., head: _Optional[int] = ..., body: _Optional[str] = ..., id: _Optional[int] = ...) -> None: ...

class CommandReply(_message.Message):
    __slots__ = ("term",)
    TERM_FIELD_NUMBER: _ClassVar[int]
    term: int
    def __init__(self, term: _Optional[int] = ...) -> None: ...

class AttachRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Wanted(_message.Message):
    __slots__ = ("workers", "servers", "leaving", "starting_workers", "starting_servers", "ended", "failed", "reason", "nodes", "nonces", "expelled", "restarting", "evicted", "joining")
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    SERVERS_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    STARTING_WORKERS_FIELD_NUMBER: _ClassVar[int]
    STARTING_SERVERS_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    NONCES_FIELD_NUMBER: _ClassVar[int]
    EXPELLED_FIELD_NUMBER: _ClassVar[int]
    RESTARTING_FIELD_NUMBER: _ClassVar[int]
    EVICTED_FIELD_NUMBER: _ClassVar[int]
    JOINING_FIELD_NUMBER: _ClassVar[int]
    workers: int
    servers: int
    leaving: _containers.RepeatedScalarFieldContainer[str]
    starting_workers: int
    starting_servers: int
    ended: bool
    failed: bool
    reason: str
    nodes: _containers.RepeatedScalarFieldContainer[str]
    nonces: _containers.RepeatedScalarFieldContainer[str]
    expelled: _containers.RepeatedScalarFieldContainer[str]
    restarting: _containers.RepeatedScalarFieldContainer[str]
    evicted: _containers.RepeatedScalarFieldContainer[str]
    joining: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, workers: _Optional[int] = ..., servers: _Optional[int] = ..., leaving: _Optional[_Iterable[str]] = ..., starting_workers: _Optional[int] = ..., starting_servers: _Optional[int] = ..., ended: _Optional[bool] = ..., failed: _Optional[bool] = ..., reason: _Optional[str] = ..., nodes: _Optional[_Iterable[str]] = ..., nonces: _Optional[_Iterable[str]] = ..., expelled: _Optional[_Iterable[str]] = ..., restarting: _Optional[_Iterable[str]] = ..., evicted: _Optional[_Iterable[str]] = ..., joining: _Optional[_Iterable[str]] = ...) -> None: ...

class NodeExitedRequest(_message.Message):
    __slots__ = ("node", "status", "nonce")
    NODE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    node: str
    status: int
    nonce: str
    def __init__(self, node: _Optional[str] = ..., status: _Optional[int] = ..., nonce: _Optional[str] = ...) -> None: ...

class NodeExitedReply(_message.Message):
    __slots__ = ("term", "known")
    TERM_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    term: int
    known: bool
    def __init__(self, term: _Optional[int] = ..., known: _Optional[bool] = ...) -> None: ...

class ScaleRequest(_message.Message):
    __slots__ = ("workers", "servers", "dry_run", "wait_in_queue", "mode", "cause")
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    SERVERS_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    WAIT_IN_QUEUE_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    workers: int
    servers: int
    dry_run: bool
    wait_in_queue: bool
    mode: MigrationMode
    cause: str
    def __init__(self, workers: _Optional[int] = ..., servers: _Optional[int] = ..., dry_run: _Optional[bool] = ..., wait_in_queue: _Optional[bool] = ..., mode: _Optional[_Union[MigrationMode, str]] = ..., cause: _Optional[str] = ...) -> None: ...

class DrainRequest(_message.Message):
    __slots__ = ("node", "wait_in_queue", "cause")
    NODE_FIELD_NUMBER: _ClassVar[int]
    WAIT_IN_QUEUE_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    node: str
    wait_in_queue: bool
    cause: str
    def __init__(self, node: _Optional[str] = ..., wait_in_queue: _Optional[bool] = ..., cause: _Optional[str] = ...) -> None: ...

class EvictRequest(_message.Message):
    __slots__ = ("node", "cause")
    NODE_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    node: str
    cause: str
    def __init__(self, node: _Optional[str] = ..., cause: _Optional[str] = ...) -> None: ...

class EvictReply(_message.Message):
    __slots__ = ("outcome",)
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    outcome: str
    def __init__(self, outcome: _Optional[str] = ...) -> None: ...

class ScaleReply(_message.Message):
    __slots__ = ("plan", "queued", "lines", "moves", "bytes_to_move", "seconds_estimated", "joining_workers", "joining_servers", "leaving", "request", "unprotects")
    PLAN_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    BYTES_TO_MOVE_FIELD_NUMBER: _ClassVar[int]
    SECONDS_ESTIMATED_FIELD_NUMBER: _ClassVar[int]
    JOINING_WORKERS_FIELD_NUMBER: _ClassVar[int]
    JOINING_SERVERS_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    UNPROTECTS_FIELD_NUMBER: _ClassVar[int]
    plan: int
    queued: bool
    lines: _containers.RepeatedScalarFieldContainer[str]
    moves: _containers.RepeatedCompositeFieldContainer[Move]
    bytes_to_move: int
    seconds_estimated: float
    joining_workers: int
    joining_servers: int
    leaving: _containers.RepeatedScalarFieldContainer[str]
    request: int
    unprotects: bool
    def __init__(self, plan: _Optional[int] = ..., queued: _Optional[bool] = ..., lines: _Optional[_Iterable[str]] = ..., moves: _Optional[_Iterable[_Union[Move, _Mapping]]] = ..., bytes_to_move: _Optional[int] = ..., seconds_estimated: _Optional[float] = ..., joining_workers: _Optional[int] = ..., joining_servers: _Optional[int] = ..., leaving: _Optional[_Iterable[str]] = ..., request: _Optional[int] = ..., unprotects: _Optional[bool] = ...) -> None: ...

class Move(_message.Message):
    __slots__ = ("source", "target", "blocks", "bytes")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    source: str
    target: str
    blocks: int
    bytes: int
    def __init__(self, source: _Optional[str] = ..., target: _Optional[str] = ..., blocks: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class CancelRequest(_message.Message):
    __slots__ = ("plan",)
    PLAN_FIELD_NUMBER: _ClassVar[int]
    plan: int
    def __init__(self, plan: _Optional[int] = ...) -> None: ...

class CancelReply(_message.Message):
    __slots__ = ("plan", "queued", "workers", "servers")
    PLAN_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    SERVERS_FIELD_NUMBER: _ClassVar[int]
    plan: int
    queued: str
    workers: int
    servers: int
    def __init__(self, plan: _Optional[int] = ..., queued: _Optional[str] = ..., workers: _Optional[int] = ..., servers: _Optional[int] = ...) -> None: ...

class CheckpointRequest(_message.Message):
    __slots__ = ("url",)
    URL_FIELD_NUMBER: _ClassVar[int]
    url: str
    def __init__(self, url: _Optional[str] = ...) -> None: ...

class CheckpointReply(_message.Message):
    __slots__ = ("url", "version", "bytes")
    URL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    url: str
    version: int
    bytes: int
    def __init__(self, url: _Optional[str] = ..., version: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class StopRequest(_message.Message):
    __slots__ = ("now", "reason", "failed")
    NOW_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    now: bool
    reason: str
    failed: bool
    def __init__(self, now: _Optional[bool] = ..., reason: _Optional[str] = ..., failed: _Optional[bool] = ...) -> None: ...

class StopReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PlansRequest(_message.Message):
    __slots__ = ("request", "latest")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    request: int
    latest: int
    def __init__(self, request: _Optional[int] = ..., latest: _Optional[int] = ...) -> None: ...

class LedgerRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StepsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StepRow(_message.Message):
    __slots__ = ("worker", "step")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    worker: str
    step: StepTime
    def __init__(self, worker: _Optional[str] = ..., step: _Optional[_Union[StepTime, _Mapping]] = ...) -> None: ...

class NodeStatus(_message.Message):
    __slots__ = ("member", "rank", "state", "version", "step_seconds", "rate", "bytes", "lease_left", "metrics", "pid", "transports", "nonce")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class TransportsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STEP_SECONDS_FIELD_NUMBER: _ClassVar[int]
    RATE_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    LEASE_LEFT_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    TRANSPORTS_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    member: Member
    rank: int
    state: str
    version: int
    step_seconds: float
    rate: float
    bytes: int
    lease_left: float
    metrics: _containers.ScalarMap[str, float]
    pid: int
    transports: _containers.ScalarMap[str, str]
    nonce: str
    def __init__(self, member: _Optional[_Union[Member, _Mapping]] = ..., rank: _Optional[int] = ..., state: _Optional[str] = ..., version: _Optional[int] = ..., step_seconds: _Optional[float] = ..., rate: _Optional[float] = ..., bytes: _Optional[int] = ..., lease_left: _Optional[float] = ..., metrics: _Optional[_Mapping[str, float]] = ..., pid: _Optional[int] = ..., transports: _Optional[_Mapping[str, str]] = ..., nonce: _Optional[str] = ...) -> None: ...

class StatusReply(_message.Message):
    __slots__ = ("job", "phase", "reason", "term", "configuration", "nodes", "wanted_workers", "wanted_servers", "version", "epoch", "step", "rate", "data", "plan", "queued", "blocks", "bytes", "optimizers", "requests", "queued_requests", "withdrawn", "waiting", "unsaved", "checkpoint", "rebuilt", "ledger_began_late", "forgotten", "protection")
    class WithdrawnEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: str
        def __init__(self, key: _Optional[int] = ..., value: _Optional[str] = ...) -> None: ...
    JOB_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    WANTED_WORKERS_FIELD_NUMBER: _ClassVar[int]
    WANTED_SERVERS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    RATE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    OPTIMIZERS_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    QUEUED_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    WITHDRAWN_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    UNSAVED_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    REBUILT_FIELD_NUMBER: _ClassVar[int]
    LEDGER_BEGAN_LATE_FIELD_NUMBER: _ClassVar[int]
    FORGOTTEN_FIELD_NUMBER: _ClassVar[int]
    PROTECTION_FIELD_NUMBER: _ClassVar[int]
    job: str
    phase: str
    reason: str
    term: int
    configuration: ConfigId
    nodes: _containers.RepeatedCompositeFieldContainer[NodeStatus]
    wanted_workers: int
    wanted_servers: int
    version: int
    epoch: int
    step: int
    rate: float
    data: DataSpec
    plan: Plan
    queued: str
    blocks: int
    bytes: int
    optimizers: _containers.RepeatedScalarFieldContainer[str]
    requests: _containers.RepeatedScalarFieldContainer[int]
    queued_requests: _containers.RepeatedScalarFieldContainer[int]
    withdrawn: _containers.ScalarMap[int, str]
    waiting: _containers.RepeatedScalarFieldContainer[str]
    unsaved: str
    checkpoint: str
    rebuilt: bool
    ledger_began_late: bool
    forgotten: int
    protection: Protection
    def __init__(self, job: _Optional[str] = ..., phase: _Optional[str] = ..., reason: _Optional[str] = ..., term: _Optional[int] = ..., configuration: _Optional[_Union[ConfigId, _Mapping]] = ..., nodes: _Optional[_Iterable[_Union[NodeStatus, _Mapping]]] = ..., wanted_workers: _Optional[int] = ..., wanted_servers: _Optional[int] = ..., version: _Optional[int] = ..., epoch: _Optional[int] = ..., step: _Optional[int] = ..., rate: _Optional[float] = ..., data: _Optional[_Union[DataSpec, _Mapping]] = ..., plan: _Optional[_Union[Plan, _Mapping]] = ..., queued: _Optional[str] = ..., blocks: _Optional[int] = ..., bytes: _Optional[int] = ..., optimizers: _Optional[_Iterable[str]] = ..., requests: _Optional[_Iterable[int]] = ..., queued_requests: _Optional[_Iterable[int]] = ..., withdrawn: _Optional[_Mapping[int, str]] = ..., waiting: _Optional[_Iterable[str]] = ..., unsaved: _Optional[str] = ..., checkpoint: _Optional[str] = ..., rebuilt: _Optional[bool] = ..., ledger_began_late: _Optional[bool] = ..., forgotten: _Optional[int] = ..., protection: _Optional[_Union[Protection, _Mapping]] = ...) -> None: ...

class Protection(_message.Message):
    __slots__ = ("blocks", "bytes", "cause", "why", "retry_seconds")
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    RETRY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    blocks: int
    bytes: int
    cause: str
    why: str
    retry_seconds: float
    def __init__(self, blocks: _Optional[int] = ..., bytes: _Optional[int] = ..., cause: _Optional[str] = ..., why: _Optional[str] = ..., retry_seconds: _Optional[float] = ...) -> None: ...

class Plan(_message.Message):
    __slots__ = ("id", "configuration", "phase", "cause", "reason", "joined", "left", "missing", "clock", "steps_ms", "bytes_moved", "suspension_ms", "mode", "fell_back", "started", "ended", "requests")
    class SuspensionMsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    STEPS_MS_FIELD_NUMBER: _ClassVar[int]
    BYTES_MOVED_FIELD_NUMBER: _ClassVar[int]
    SUSPENSION_MS_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    FELL_BACK_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    id: int
    configuration: ConfigId
    phase: str
    cause: str
    reason: str
    joined: _containers.RepeatedScalarFieldContainer[str]
    left: _containers.RepeatedScalarFieldContainer[str]
    missing: _containers.RepeatedScalarFieldContainer[str]
    clock: int
    steps_ms: _containers.RepeatedScalarFieldContainer[float]
    bytes_moved: int
    suspension_ms: _containers.ScalarMap[str, float]
    mode: MigrationMode
    fell_back: _containers.RepeatedScalarFieldContainer[str]
    started: float
    ended: float
    requests: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, id: _Optional[int] = ..., configuration: _Optional[_Union[ConfigId, _Mapping]] = ..., phase: _Optional[str] = ..., cause: _Optional[str] = ..., reason: _Optional[str] = ..., joined: _Optional[_Iterable[str]] = ..., left: _Optional[_Iterable[str]] = ..., missing: _Optional[_Iterable[str]] = ..., clock: _Optional[int] = ..., steps_ms: _Optional[_Iterable[float]] = ..., bytes_moved: _Optional[int] = ..., suspension_ms: _Optional[_Mapping[str, float]] = ..., mode: _Optional[_Union[MigrationMode, str]] = ..., fell_back: _Optional[_Iterable[str]] = ..., started: _Optional[float] = ..., ended: _Optional[float] = ..., requests: _Optional[_Iterable[int]] = ...) -> None: ...

class PlansReply(_message.Message):
    __slots__ = ("plans",)
    PLANS_FIELD_NUMBER: _ClassVar[int]
    plans: _containers.RepeatedCompositeFieldContainer[Plan]
    def __init__(self, plans: _Optional[_Iterable[_Union[Plan, _Mapping]]] = ...) -> None: ...
