"""Frames that are well-formed and wrong, from peers that know the token: they cost nobody else anything."""

from elastic_ps.core.model import Tensor
from elastic_ps.transport.frame_kinds import Kind
from elastic_ps.transport.frame_metas import PushMeta
from elastic_ps.transport.frames import Frame
from tests.elastic_ps.server.server_harness import Job, Jobs
from tests.elastic_ps.server.server_reference import HYPER


def test_rows_of_a_tensor_whose_blocks_cut_them_are_refused(jobs: Jobs) -> None:
    """They could be taken apart only at the other worker's push, which was refused in their place."""
    job = jobs.begin(Job((Tensor(0, "i:0", (2, 400), "float32"),)))
    count = len(job.model.blocks)
    rows = Frame(PushMeta(runs=[[0, count]], rows=[0], hyper=HYPER.to_dict()), job.configuration.id, 0, 4)
    job.workers["w0"].send("s0", rows)
    refused = job.workers["w0"].await_kind(Kind.REFUSED)
    assert "hold no whole ones" in refused.meta.detail
