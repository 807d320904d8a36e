"""This module makes MXNet 1.9.1 usable: import this before the first `import mxnet`, or `mxnet` from here.

MXNet names two things that have moved since: `numpy.bool`, which numpy dropped in 1.24, and `scipy.sparse.csr`'s
`csr_matrix`, which every `mx.nd.array` looks at and SciPy warns about. Both names are put back. While it is imported
MXNet uses more names that numpy and distutils have deprecated; those warnings, and no others, are silenced meanwhile,
and the filters of the process are as before afterwards.

A Module that is bound for inference fuses its operators, and the fused ones go on with weights that they have kept
from their first batch, though the Module that trains shares the arrays with it. So nothing is fused, unless the
process's environment names a `MXNET_SUBGRAPH_BACKEND`; MXNet reads that whenever a Module is bound.
"""

import os
import warnings
from importlib import import_module
from importlib.util import find_spec

import numpy

from elastic_ps.system.extras import how_to_install

os.environ.setdefault("MXNET_SUBGRAPH_BACKEND", "NONE")

if "bool" not in vars(numpy):  # hasattr would warn: numpy 1.26 reserves the name
    numpy.bool = bool  # type: ignore[attr-defined, unused-ignore]

if find_spec("scipy"):  # MXNet does without
    import_module("scipy.sparse.csr").csr_matrix = import_module("scipy.sparse").csr_matrix  # type: ignore[attr-defined]

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", r"In accordance with NEP 32", DeprecationWarning)
    warnings.filterwarnings("ignore", r"distutils Version classes are deprecated", DeprecationWarning)
    try:
        import mxnet
    except ModuleNotFoundError as error:
        if error.name != "mxnet":
            raise
        raise ModuleNotFoundError(
            f"MXNet is not installed: `{how_to_install('mxnet')}` on Python 3.11 brings it, with numpy 1.26",
            name="mxnet",
        ) from error

__all__ = ["mxnet"]
