"""Traces and clusters: what is read, what is refused, and with which words."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.jobs import Job, Node
from dl2_scheduler.sim.trace import parse_cluster, read_trace, write_trace

LINE: dict[str, Any] = {
    "id": 1,
    "arrival": 0.0,
    "model": "resnet-50",
    "epochs": 90.0,
    "samples_per_epoch": 115.0,
    "worker": {"cpu": 2, "gpu": 4},
    "server": {"cpu": 2, "gpu": 0},
    "max_workers": 16,
    "max_servers": 16,
}
JOB = Job(1, 0.0, "resnet-50", 90.0, 115.0, {"cpu": 2, "gpu": 4}, {"cpu": 2, "gpu": 0})


def without(*names: str) -> str:
    return json.dumps({name: value for name, value in LINE.items() if name not in names})


def changed(**fields: Any) -> str:
    return json.dumps({**LINE, **fields})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.jsonl"


def test_the_line_of_the_docs(path: Path) -> None:
    path.write_text(json.dumps(LINE))
    assert read_trace(path) == [JOB]


def test_what_may_be_left_out(path: Path) -> None:
    path.write_text(without("max_workers", "max_servers") + "\n\n" + changed(id=2, epochs_estimate=80) + "\n")
    first, second = read_trace(path)
    assert first == JOB
    assert (second.id, second.estimate) == (2, 80.0)


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("", "empty: give one JSON object a line with id, arrival, model"),
        ("\n \n", "empty"),
        (without() + "\n" + without()[:-30], r":2: not JSON, perhaps torn"),
        ("[" * 100_000, ":1: not JSON, perhaps torn"),
        ("[1, 2]", r":1: not a JSON object but \[1, 2\]"),
        (without("epochs", "worker"), ":1: no epochs, worker"),
        (changed(gpus=3), ":1: unknown field gpus: there are id, arrival"),
        (changed(id=1.5), ":1: id is 1.5: give a whole number or a text"),
        (changed(id=True), ":1: id is true"),
        (changed(arrival="noon"), ':1: arrival is "noon": give a number'),
        (changed(epochs=10**400), ":1: epochs is 1000+: give a smaller number"),
        (changed(model=7), ":1: model is 7: give a text"),
        (changed(model=""), ':1: model is "": give a text'),
        (changed(max_workers=2.0), ":1: max_workers is 2.0: give a whole number"),
        (changed(worker=3), ":1: worker is 3: give amounts by resource"),
        (changed(worker={"cpu": "2"}), ":1: worker is .*: give amounts by resource"),
        (changed(epochs_estimate=None), ":1: epochs_estimate is null: give a number"),
        (changed(partition=-1), ":1: partition is -1: give"),
        (changed(epochs=float("nan")), ":1: epochs is nan: give a number above 0"),
        (changed(arrival=-1), ":1: arrival is -1: give a number from 0"),
        (changed(max_servers=0), ":1: max_servers is 0: give 1 to 256"),
        (changed(server={"cpu": 0}), ":1: server takes nothing"),
        (without() + "\n\n" + without(), r":3: id 1 again, as in .*:1: give every job its own"),
        (without() + "\n" + changed(id="two"), r":2: id 'two' beside 1: give numbers only, or texts only"),
    ],
)
def test_what_is_refused(path: Path, lines: str, reason: str) -> None:
    path.write_text(lines)
    with pytest.raises(BadInput, match=reason) as caught:
        read_trace(path)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize("content", [None, b"\xff"])
def test_a_file_that_cannot_be_read(path: Path, content: bytes | None) -> None:
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadInput, match=str(path)):
        read_trace(path)


amounts = st.floats(0.1, 1e6)
demands = st.dictionaries(st.text(min_size=1), amounts, min_size=1, max_size=3)
jobs = st.builds(
    Job,
    id=st.integers(),
    arrival=st.floats(0, 1e9),
    model=st.text(min_size=1),
    epochs=amounts,
    samples_per_epoch=amounts,
    worker=demands,
    server=demands,
    max_workers=st.integers(1, 99),
    max_servers=st.integers(1, 99),
    epochs_estimate=st.none() | amounts,
    partition=st.integers(0, 20),
)


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(jobs, min_size=1, max_size=3, unique_by=lambda job: job.id))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, written: list[Job]) -> None:
    path = tmp_path_factory.mktemp("trace") / "trace.jsonl"
    write_trace(path, written)
    assert read_trace(path) == written
    before = path.read_bytes()
    write_trace(path, read_trace(path))
    assert path.read_bytes() == before


def test_a_trace_is_written_whole_or_not_at_all(path: Path) -> None:
    def torn() -> Any:
        yield JOB
        raise KeyboardInterrupt

    write_trace(path, [JOB])
    with pytest.raises(KeyboardInterrupt):
        write_trace(path, torn())
    assert read_trace(path) == [JOB]
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(("where", "reason"), [("", "not a file"), ("none/trace.jsonl", "cannot be written: No such")])
def test_where_no_trace_can_be_written(tmp_path: Path, where: str, reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        write_trace(tmp_path / where, [JOB])


def test_a_cluster_by_default() -> None:
    nodes = parse_cluster()
    assert len({node.name for node in nodes}) == 96
    assert {tuple(node.capacity.items()) for node in nodes} == {(("cpu", 8.0), ("gpu", 8.0))}


def test_groups_of_nodes() -> None:
    nodes = parse_cluster("2x8cpu,1.5gpu+1x16cpu")
    assert nodes == (
        Node("node-0", {"cpu": 8.0, "gpu": 1.5}),
        Node("node-1", {"cpu": 8.0, "gpu": 1.5}),
        Node("node-2", {"cpu": 16.0}),
    )


def test_nodes_in_a_file(path: Path) -> None:
    path.write_text('{"name": "a", "capacity": {"cpu": 8}}\n{"name": "b", "capacity": {"gpu": 2.5}}\n')
    assert parse_cluster(str(path)) == (Node("a", {"cpu": 8}), Node("b", {"gpu": 2.5}))


@pytest.mark.parametrize(
    ("given_text", "reason"),
    [
        ("", "a folder: give nodes as in 96x8cpu,8gpu or 10x8cpu,8gpu"),
        ("nowhere\0", "no such file"),
        ("x" * 5000, "no such file"),
        ("0x8cpu", "no nodes"),
        ("2x8cpu+", "'' in '2x8cpu\\+': give nodes as in"),
        ("2x8cpu,", "'' in '2x8cpu,': give an amount and its resource, as in 8cpu"),
        ("2xcpu", "'cpu' in '2xcpu'"),
        ("2x8", "'8' in '2x8'"),
        ("2x-8cpu", "'-8cpu'"),
        ("2x8cpu,4cpu", "cpu again"),
        ("2x0cpu", "a node with nothing"),
        (f"1x{'9' * 400}cpu", "the amount of cpu is inf: give a number from 0"),
        ("100000x8cpu+1x8cpu", "more than 100000 nodes"),
    ],
)
def test_what_is_no_cluster(given_text: str, reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        parse_cluster(given_text)


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ('{"name": "a"}', ":1: no capacity"),
        ('{"name": "a", "capacity": {"cpu": -1}}', ":1: the amount of cpu is -1"),
        ('{"name": "a", "capacity": {}}', ":1: a node with nothing"),
        ('{"name": "a", "capacity": {"cpu": 1}}\n' * 2, ":2: node a again"),
    ],
)
def test_what_is_no_node(path: Path, lines: str, reason: str) -> None:
    path.write_text(lines)
    with pytest.raises(BadInput, match=reason):
        parse_cluster(str(path))
