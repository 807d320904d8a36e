"""Makes MXNet 1.9.1 importable: `import elastic_ps.mxnet.shim` before the first `import mxnet`.

MXNet names `numpy.bool`, which numpy dropped in 1.24, and while it is imported uses names that numpy and distutils
have deprecated. None of it can be mended from a script, so those warnings, and no others, are silenced while MXNet
is imported; the filters of the process are as before afterwards.
"""

import warnings

import numpy

if "bool" not in vars(numpy):  # hasattr would warn: numpy 1.26 reserves the name
    numpy.bool = bool  # type: ignore[attr-defined, unused-ignore]

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", r"In accordance with NEP 32", DeprecationWarning)
    warnings.filterwarnings("ignore", r"distutils Version classes are deprecated", DeprecationWarning)
    import mxnet  # noqa: F401
