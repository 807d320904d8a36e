"""Whatever a message holds, it is served or refused with a sentence: no call ends in UNKNOWN or INTERNAL."""

import random
import secrets

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor as Field

from coordinator.server.message_checks import checked_tensor, fault
from elastic_ps.core.configuration import Role
from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.model import Tensor
from elastic_ps.node.session import Session
from elastic_ps.node.settings import NodeSettings
from protos import elastic_pb2 as pb
from protos import elastic_pb2_grpc as rpc
from tests.coordinator.server.test_coordinator_service import TOKEN, RegisteredNode, Served
from tests.coordinator.token_channel import showing

METHODS = [  # those that end a job of one worker at once would leave nothing to try
    method
    for method in pb.DESCRIPTOR.services_by_name["Coordinator"].methods
    if method.name not in ("Greet", "Stop", "Evict", "NodeExited")
]
NUMBERS = [0, 1, 2, 7, -1, 2**31 - 1, -(2**31), 2**32 - 1, 2**62, 2**63 - 1, -(2**63), 2**64 - 1]
TEXTS = ["", "w0", "s0", "x" * 2000, "ж", "\x00", "../../x", '{"name":"sgd","args":{},"keys":{}}', "{", "[]", "null"]
TEXTS += ['{"name":"sgd","args":[1],"keys":{"a":5}}', "float32", "bogus", "object", "U5", "i4,(", "datetime64"]
TEXTS += ["sync", "async", "ssp", "short", "sum", "mean", "i:1", "file:///proc/x"]
FLOATS = [0.0, 1.0, -1.0, float("nan"), float("inf"), 1e308, 5e-324]
BOUNDS = {
    Field.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    Field.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    Field.CPPTYPE_UINT32: (0, 2**32 - 1),
    Field.CPPTYPE_UINT64: (0, 2**64 - 1),
}
CALL_SECONDS = 0.3  # of a call that may wait for others


def value(draw, field):
    if field.cpp_type in BOUNDS:
        low, high = BOUNDS[field.cpp_type]
        return draw.choice([number for number in NUMBERS if low <= number <= high])
    if field.cpp_type == Field.CPPTYPE_BOOL:
        return draw.random() < 0.5
    if field.cpp_type in (Field.CPPTYPE_DOUBLE, Field.CPPTYPE_FLOAT):
        return draw.choice(FLOATS)
    if field.cpp_type == Field.CPPTYPE_ENUM:
        return draw.choice([*field.enum_type.values_by_number, 77])
    return draw.choice(TEXTS)


def filled(draw, message, depth=0):
    for field in message.DESCRIPTOR.fields:
        if draw.random() < 0.4 or field.name == "caller":
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            getattr(message, field.name)["loss" if draw.random() < 0.8 else "x" * 99999] = (
                draw.choice(FLOATS) if field.name == "metrics" else "shm"
            )
        elif field.message_type is not None and depth < 4:
            parts = getattr(message, field.name)
            for _ in range(draw.randrange(3) if field.is_repeated else 1):
                filled(draw, parts.add() if field.is_repeated else parts, depth + 1)
        elif field.message_type is None and field.is_repeated:
            getattr(message, field.name).extend(value(draw, field) for _ in range(draw.randrange(4)))
        elif field.message_type is None:
            setattr(message, field.name, value(draw, field))
    return message


@pytest.fixture
def served(tmp_path):
    coordinator = Served(tmp_path)
    yield coordinator
    coordinator.close()


@pytest.fixture
def stub(served):
    with grpc.insecure_channel(f"127.0.0.1:{served.port}") as channel:
        yield rpc.CoordinatorStub(showing(channel, TOKEN))


def called(stub, name, request, seconds=10.0):
    """How a call ended; DEADLINE_EXCEEDED: it waits, as some may."""
    try:
        reply = getattr(stub, name)(request, timeout=seconds)
        if hasattr(reply, "code"):
            list(reply)
    except grpc.RpcError as error:
        return error.code(), error.details()
    return grpc.StatusCode.OK, ""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_random_messages_are_served_or_refused_with_a_sentence(served, stub, seed):
    draw = random.Random(seed)
    nodes = [RegisteredNode(served.port, kind, f"n{kind}") for kind in (pb.INC_WORKER, pb.INC_SERVER)]
    seen = set()
    for _ in range(150):
        method = draw.choice(METHODS)
        request = filled(draw, getattr(pb, method.input_type.name)())
        if "caller" in method.input_type.fields_by_name:
            request.caller.node = draw.choice([node.id for node in nodes] + ["w0", "zz"])
        code, details = called(stub, method.name, request, CALL_SECONDS)
        seen.add(code)
        assert code not in (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL), (method.name, request, details)
        assert code is grpc.StatusCode.OK or details, (method.name, request)
    assert called(stub, "Status", pb.StatusRequest())[0] is grpc.StatusCode.OK, "it still runs"
    assert {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT} <= seen


@pytest.mark.parametrize(
    ("name", "request_", "sentence"),
    [
        ("Scale", pb.ScaleRequest(workers=2, mode=77), "mode: 77 is none of LIVE, PAUSE"),
        (
            "Listen",
            pb.ListenRequest(introduction=pb.Introduction(role=77)),
            "introduction.role: 77 is none of ROLE_UNSPECIFIED, WORKER, SERVER",
        ),
        ("Report", pb.ReportRequest(ledger_sequence=2**64 - 1), f"ledger_sequence: {2**64 - 1} is more than {2**62}"),
        ("Report", pb.ReportRequest(step_seconds=float("inf")), "step_seconds: inf is not finite"),
        (
            "Report",
            pb.ReportRequest(ledger=[pb.LedgerEntry(runs=[0, 1, 2])]),
            "ledger.runs: pairs are meant, not 3 numbers",
        ),
        (
            "Report",
            pb.ReportRequest(ledger=[pb.LedgerEntry(runs=[0, 1, 2**32 - 1, 7])]),
            "ledger.runs: the blocks of a run are at most 2147483647",
        ),
        ("Drain", pb.DrainRequest(node="x" * 99999), "node: a text of 99999 characters"),
        ("Drain", pb.DrainRequest(node="a\0b"), "a text with a zero in it"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_no_correct_caller_sends_is_named(stub, name, request_, sentence):
    code, details = called(stub, name, request_)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert sentence in details


WORKER, SERVER = pb.Member(id="w0", role=pb.WORKER), pb.Member(id="s0", role=pb.SERVER, port=9)


def configured(workers=(WORKER,), servers=(SERVER,), assignment=(0, 0), followers=()):
    return pb.Configuration(workers=workers, servers=servers, assignment=assignment, followers=followers)


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        ({"block_bytes": 65}, "blocks of 65 bytes"),
        ({"tensors": [pb.Tensor(key="i:0", dtype="bogus")]}, "is not one of numpy's"),
        ({"dead": ["wx"]}, "'wx' is no name of a node"),
        ({"current": configured(assignment=[0, 1])}, "gives blocks to servers that it does not have"),
        ({"prepared": configured(followers=[0, -2])}, "gives blocks to servers that it does not have"),
        ({"before": configured(followers=[0])}, "1 followers of 2 blocks"),
        ({"current": configured(workers=[WORKER, WORKER])}, "names a node twice"),
        ({"current": configured(workers=[SERVER], servers=[])}, "'s0' is no name of a worker"),
        ({"current": configured(servers=[pb.Member(id="sx", role=pb.SERVER)])}, "'sx' is no name of a server"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_coordinator_without_a_journal_believes_no_node_what_cannot_be(tmp_path, told, sentence):
    """It puts its state together of it, where nobody is left to be refused: it ended, and so did the next one."""
    coordinator = Served(tmp_path, term=3)
    try:
        introduction = pb.Introduction(role=pb.WORKER, nonce="n0", **{"block_bytes": 64, **told})
        with grpc.insecure_channel(f"127.0.0.1:{coordinator.port}") as channel:
            request = pb.ListenRequest(caller=pb.Caller(node="w0"), introduction=introduction)
            stub = rpc.CoordinatorStub(showing(channel, TOKEN))
            with pytest.raises(grpc.RpcError) as refused:
                next(stub.Listen(request, timeout=10))
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert sentence in refused.value.details()
    finally:
        coordinator.close()


def test_a_tensor_of_more_axes_than_there_can_be_is_refused_before_its_size_is_worked_out():
    """A message has room for millions of them, whose product takes hours."""
    with pytest.raises(ConfigurationError, match=r"'i:0' with 10000 axes: at most 64 are taken"):
        checked_tensor(Tensor(0, "i:0", (2**62,) * 10_000, "int8"))


def test_a_loss_may_be_nan_and_a_seed_any_bits():
    assert not fault(pb.ReportRequest(metrics={"loss": float("nan")}))
    assert not fault(pb.RegisterReply(seed=2**64 - 1))
    assert fault(pb.ReportRequest(metrics={"x" * 99999: 1.0}))


def test_a_command_is_taken_whatever_name_its_script_has_drawn(monkeypatch):
    """Half of them were refused: they are drawn of more than what numbers may be."""
    asked = []
    session = Session(NodeSettings("127.0.0.1:1", TOKEN, nonce="n"), Role.WORKER)
    monkeypatch.setattr(secrets, "randbits", lambda bits: 2**bits - 1)
    monkeypatch.setattr(session, "_wait", lambda _method, request: asked.append(request))
    session.command(1, "body")
    (request,) = asked
    assert not fault(request)
    assert not fault(pb.AcknowledgeRequest(answer=pb.COMMANDED, command=request.id))
    assert fault(pb.AcknowledgeRequest(version=2**63 - 1))
