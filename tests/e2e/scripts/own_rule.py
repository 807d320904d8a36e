"""Trains with optimizers that servers refuse, or that fail: argv: FOLDER MODULE:CLASS."""
# ruff: noqa: I001

import sys
from pathlib import Path

import elastic_ps
import elastic_ps.mxnet
import mxnet as mx


class Mine(mx.optimizer.Optimizer):
    elastic_rule = sys.argv[2]


elastic_ps.init()
kv = mx.kv.create("dist_elastic")
kv.init("w", mx.nd.zeros(4))
try:
    kv.set_optimizer(Mine())
except mx.MXNetError as error:
    Path(sys.argv[1], f"refused-{kv.rank}").write_text(str(error))
    kv.barrier()  # where the job has a rule another one is ignored, and not refused
    kv.set_optimizer(mx.optimizer.create("test", rescale_grad=2))
value = mx.nd.zeros(4)
for _ in range(3):
    kv.push("w", mx.nd.ones(4) * (kv.rank + 1))
    kv.pull("w", out=value)
Path(sys.argv[1], f"value-{kv.rank}").write_text(str(value.asnumpy().tolist()))
