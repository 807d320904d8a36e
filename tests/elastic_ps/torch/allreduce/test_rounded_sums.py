"""A step's sum whose gradients travel in a shorter type: all members have the same, and half of the bytes travel."""

import threading
from queue import SimpleQueue
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from elastic_ps.torch.allreduce.replica.replica import PartWeights, Replica  # noqa: E402
from elastic_ps.torch.allreduce.summing.step_buffers import StepBuffers  # noqa: E402
from elastic_ps.torch.allreduce.summing.step_sum import StepSum  # noqa: E402
from elastic_ps.torch.arrays import ModelArray  # noqa: E402
from tests.elastic_ps.torch.allreduce.small_replicas import model_of  # noqa: E402

WAIT = 20.0
STATISTICS = {"running_mean", "running_var", "num_batches_tracked"}


class Lines:
    """What members send to each other, by who sends, who receives, and the tag."""

    def __init__(self):
        self._lock = threading.Lock()
        self._queues = {}
        self.bytes = 0

    def of(self, *way):
        with self._lock:
            return self._queues.setdefault(way, SimpleQueue())

    def sent(self, tensor):
        with self._lock:
            self.bytes += tensor.nbytes


class Member:
    """A member of a group whose thread is the test's."""

    def __init__(self, rank, size, lines):
        self.rank, self.size, self._lines = rank, size, lines

    def submit(self, body):
        return body()

    def gather(self, told):
        return [list(told)]

    def send(self, tensor, other, tag):
        self._lines.sent(tensor)
        self._lines.of(self.rank, other, tag).put(tensor.clone())
        return SimpleNamespace(wait=lambda: None)

    def receive(self, tensor, other, tag):
        return SimpleNamespace(wait=lambda: tensor.copy_(self._lines.of(other, self.rank, tag).get(timeout=WAIT)))


def sums_of(gradients, wire, limit=16):
    """Return each member's sum, flat, its statistics, and how many bytes have travelled."""
    lines, found = Lines(), {}

    def run(rank):
        model = model_of(1)
        for parameter, values in zip(model.parameters(), gradients[rank], strict=True):
            parameter.grad = values
        model[1].running_mean.fill_(rank / 3)
        arrays = {name: ModelArray(model[int(name[0])], name[2:]) for name in model.state_dict()}
        statistics = {name for name in arrays if name[2:] in STATISTICS}
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        replica = Replica(optimizer, list(model.parameters()), arrays, statistics, wire)
        buffers = StepBuffers(replica.layout, lambda memory: False)
        group, weights = Member(rank, len(gradients), lines), PartWeights(1.0, 1.0)
        buckets = replica.layout.buckets(limit)
        for _ in range(2):  # memory is used again
            step = StepSum(group, 0, buckets, buffers, lambda bucket, sums: replica.fill(bucket, sums, weights))
            step.finish(())
        flat, count = step.sums[torch.float32], replica.layout.gradients[torch.float32]
        found[rank] = flat[:count].clone(), flat[count:].clone()

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(len(gradients))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert len(found) == len(gradients)
    return [found[rank] for rank in range(len(gradients))], lines.bytes


def drawn(members):
    random = torch.Generator().manual_seed(members)
    shapes = [parameter.shape for parameter in model_of(1).parameters()]
    return [[torch.randn(shape, generator=random) for shape in shapes] for _ in range(members)]


def added_by(rank, parts):
    """Return the sum as the member of a rank makes it: lower ranks' first, then its own, then the others'."""
    total = parts[rank] + sum(parts[1:rank], parts[0]) if rank else parts[0]
    return sum(parts[rank + 1 :], total)


@pytest.mark.parametrize("members", [2, 3, 4])
@pytest.mark.parametrize("wire", [torch.bfloat16, torch.float16])
def test_all_have_the_rounded_sum_of_rounded_parts_in_the_order_of_ranks(members, wire):
    gradients = drawn(members)
    flat = [torch.cat([each.reshape(-1) for each in listed]) for listed in gradients]
    rounded = [each.to(wire).float() for each in flat]
    found, _ = sums_of(gradients, wire)
    possible = torch.stack([added_by(rank, rounded).to(wire).float() for rank in range(members)])
    for gradient, statistics in found:
        assert torch.equal(gradient, found[0][0])
        assert (gradient == possible).any(dim=0).all(), "by whichever member has added an element up"
        assert torch.equal(statistics[:2], torch.full((2,), sum(rank / 3 for rank in range(members)))), "not rounded"
    assert not torch.equal(found[0][0], sums_of(gradients, None)[0][0][0])


def test_half_of_the_bytes_of_gradients_travel():
    gradients = drawn(2)
    lengths = {wire: sums_of(gradients, wire)[1] for wire in (None, torch.bfloat16)}
    count = sum(each.numel() for each in gradients[0])
    assert lengths[None] - lengths[torch.bfloat16] == 2 * 2 * count * 2, "two steps, two members, 2 bytes an element"


@pytest.mark.parametrize("wire", [None, torch.bfloat16])
def test_a_lone_member_rounds_nothing_as_nothing_travels(wire):
    gradients = drawn(1)
    ((found, _),), sent = sums_of(gradients, wire)
    assert torch.equal(found, torch.cat([each.reshape(-1) for each in gradients[0]]))
    assert sent == 0


def test_what_overflows_stays_infinite():
    gradients = drawn(2)
    gradients[1][0][0, 0] = 1e6
    for found, _ in sums_of(gradients, torch.float16)[0]:
        assert torch.isinf(found[0])
        assert torch.isfinite(found[1:]).all()


def test_members_of_another_compression_are_of_another_shape():
    shapes = set()
    for wire in (None, torch.bfloat16, torch.float16):
        model = model_of(1)
        parameters = list(model.parameters())
        shapes.add(Replica(torch.optim.SGD(parameters, lr=0.1), parameters, {}, (), wire).shape())
    assert len(shapes) == 3
