"""A checkpoint of very many blocks: what a server says of them has to come through."""

import io
import json

import numpy as np

from coordinator.core import events as ev
from coordinator.core import node_answers as na
from coordinator.server.message_checks import fault
from elastic_ps.core import long_text
from elastic_ps.server.checkpoints.files import BlockFileWriter
from protos import elastic_pb2 as pb
from tests.coordinator.played_job import World, text

BLOCKS = 130_000


def test_what_a_server_says_of_a_hundred_thousand_blocks_is_taken():
    """Its message was refused, so that it ended, as did the next one."""
    writer = BlockFileWriter(io.BytesIO(), "s0.bin")
    values = np.random.default_rng(0).standard_normal((BLOCKS, 2)).astype(np.float32)
    for block, data in enumerate(values):
        writer.write_block(block, 120, 120, [("", data), ("momentum", data), ("mean", data)])
    told = writer.contents("s3://bucket/version-0000000120-mine")
    assert fault(pb.AcknowledgeRequest(answer=pb.SAVED, detail=told)) == ""
    unpacked = long_text.unpacked(told)
    assert len(unpacked) > 16 << 20
    assert len(json.loads(unpacked)["blocks"]) == BLOCKS


def test_a_packed_answer_is_a_servers_answer(monkeypatch):
    monkeypatch.setattr(long_text, "LONG", 0)
    world = World(1, 2, checkpoint="/ck")
    world.ask(ev.CheckpointAsked)
    for node in (world.node("s0"), world.node("s1")):
        usual = node.answer
        node.answer = lambda kind, *told, usual=usual: usual(
            kind, *(long_text.packed(each) if kind is na.Saved and isinstance(each, str) else each for each in told)
        )
    manifest = world.saved().manifest
    assert sorted(manifest.blocks) == list(range(len(world.state.job.model.blocks)))


def test_a_packed_answer_that_is_damaged_fails_the_checkpoint():
    world = World(1, 1, checkpoint="/ck")
    world.ask(ev.CheckpointAsked)
    asked = world.asked
    world.node("s0").on_saveblocks = lambda save: world.node("s0").answer(na.Saved, save.clock, "zlib:abc")
    for _ in range(5):
        world.turn()
    assert "s0 could not save its blocks" in text(world.replies[asked])
