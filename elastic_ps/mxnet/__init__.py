"""This package is the MXNet adapter: importing it makes the kvstore "dist_elastic" known to MXNet.

import elastic_ps.mxnet
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, kvstore="dist_elastic")
"""

import elastic_ps.mxnet.shim  # noqa: F401  # before anything that imports mxnet

# isort: split
from mxnet.gluon import Block
from mxnet.module import BaseModule

from elastic_ps.core.script_hints import (
    ITERATE_OVER_SAMPLER,
    KEEP_SHORT_STEP,
    NAME_NO_CONSISTENCY,
    OPTIMIZER_ON_SERVERS,
    PUSH_AS_REHEARSED,
    PUSH_EACH_BATCH,
    PUSH_FROM_THE_START,
    PUSH_SAME_KEYS,
    give_hints,
)
from elastic_ps.mxnet.data import ElasticDataLoader
from elastic_ps.mxnet.errors import KVStoreError, KVStoreLost
from elastic_ps.mxnet.joining import tell_at_exit
from elastic_ps.mxnet.kvstore import ElasticKVStore, register
from elastic_ps.mxnet.module import track_auxiliary
from elastic_ps.mxnet.record_files import lock_reads
from elastic_ps.mxnet.rehearsed_optimizers import note_optimizers
from elastic_ps.mxnet.trainer_checks import refuse_clipping
from elastic_ps.mxnet.trainer_loops import combine_loops
from elastic_ps.node.settings import is_node
from elastic_ps.system.process.quick_end import freeze_imports
from elastic_ps.worker.script.rehearsal_undo import offer_undo

__all__ = ["ElasticDataLoader", "ElasticKVStore", "KVStoreError", "KVStoreLost", "track_auxiliary"]

register()
combine_loops()
refuse_clipping()
lock_reads()
tell_at_exit()
offer_undo(note_optimizers)
give_hints(
    {
        OPTIMIZER_ON_SERVERS: "In MXNet: use gluon.Trainer, and leave its update_on_kvstore at the default, or call "
        "kv.set_optimizer before the first push",
        PUSH_EACH_BATCH: "In MXNet: call trainer.step(global_batch) there, with a gluon.Trainer that was made with "
        'kvstore="dist_elastic"',
        PUSH_SAME_KEYS: "In MXNet: a gluon.Trainer does; in a loop of your own give pushpull the same keys everywhere",
        PUSH_AS_REHEARSED: "In MXNet: the first batch of each worker trains nothing; let it call step() of each "
        "Trainer as often as any other batch does",
        PUSH_FROM_THE_START: "In MXNet: its grad_req was 'null' then. Let it have a gradient in every batch, and a "
        "gluon.Trainer of its own, which is made in or before the first one and steps in each with learning rate "
        "0 (set_learning_rate) as long as it is to keep still",
        ITERATE_OVER_SAMPLER: "In MXNet: or over an ElasticDataLoader",
        KEEP_SHORT_STEP: 'In MXNet: last="short"',
        NAME_NO_CONSISTENCY: 'In MXNet: kvstore="dist_elastic" names none, "dist_elastic_async" names async',
    }
)
if is_node():
    freeze_imports((Block, BaseModule))
