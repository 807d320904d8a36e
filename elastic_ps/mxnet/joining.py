"""This module says it when a script that has imported the adapter ends without having joined its job.

A `gluon.Trainer` makes its kvstore at its first step, so a script that names "dist_elastic" and never calls
`trainer.step` trains alone, and nothing fails.
"""

import atexit
import sys

from elastic_ps.node.settings import is_node
from elastic_ps.worker.script.worker_job import has_asked_to_join

UNJOINED = (
    "elastic_ps: this script has ended without joining its job, so nothing that it trained was shared. In MXNet it "
    'joins at the first step of a gluon.Trainer that was made with kvstore="dist_elastic" (call trainer.step in the '
    'loop), by mx.kv.create("dist_elastic"), or by elastic_ps.init()'
)


def tell_at_exit() -> None:
    """Tell of it on stderr when the process ends, if it is a worker's and its script has not failed."""
    if is_node():
        atexit.register(_tell)


def _tell() -> None:
    failed = hasattr(sys, "last_value")  # then a traceback says what is wrong
    if not failed and not has_asked_to_join():
        print(UNJOINED, file=sys.stderr)
