"""This script of a job of `mxnet_tests` runs a file of MXNet's own tests, in which every store's name means ours.

    python -m benchmarks.scripts.mxnet_tests_script FILE TEST [ARGUMENTS]

calls the function TEST, or where that is "-" runs FILE.
"""
# ruff: noqa: I001  # elastic_ps.mxnet makes mxnet importable

import importlib
import os
import runpy
import sys
import tempfile
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any

import elastic_ps
import elastic_ps.mxnet
import mxnet as mx

_OURS = {
    "local": "dist_elastic",
    "local_allreduce_cpu": "dist_elastic",
    "device": "dist_elastic",
    "dist_sync": "dist_elastic",
    "dist_async": "dist_elastic_async",
}


def rename_stores() -> None:
    """Let MXNet's names of stores mean ours: in `kv.create`, and where a Trainer is given one or takes its default."""
    create, begin = mx.kv.create, mx.gluon.Trainer.__init__

    @wraps(create)
    def renamed(name: str = "local") -> Any:
        return create(_OURS.get(name, name))

    @wraps(begin)
    def begun(
        self: Any, params: Any, optimizer: Any, options: Any = None, kvstore: Any = "device", **more: Any
    ) -> None:
        begin(
            self,
            params,
            optimizer,
            options,
            _OURS.get(kvstore, kvstore) if isinstance(kvstore, str) else kvstore,
            **more,
        )

    mx.kv.create, mx.gluon.Trainer.__init__ = renamed, begun


def stand_in_for_nose() -> None:
    """Provide what MXNet's tests use of nose, a package that no longer runs."""
    nose, tools = ModuleType("nose"), ModuleType("nose.tools")

    def assert_raises(kind: type[BaseException], act: Callable[..., Any], *args: Any) -> None:
        try:
            act(*args)
        except kind:
            return
        raise AssertionError(f"{act} did not raise {kind}")

    def raises(kind: type[BaseException]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        return lambda test: wraps(test)(lambda *args: assert_raises(kind, test, *args))

    tools.__dict__.update(assert_raises=assert_raises, raises=raises, make_decorator=wraps)
    nose.__dict__.update(tools=tools)
    sys.modules.update({"nose": nose, "nose.tools": tools})


def take_whole_floats() -> None:
    """Let `reshape((4 / 2, 2))` work, as the tests write it: it was right in the Pythons of MXNet 1.9.1's own time."""
    reshape = mx.nd.NDArray.reshape

    @wraps(reshape)
    def reshaped(self: Any, *shape: Any, **more: Any) -> Any:
        if len(shape) == 1 and isinstance(shape[0], tuple):
            shape = (tuple(map(int, shape[0])),)
        return reshape(self, *shape, **more)

    mx.nd.NDArray.reshape = reshaped


def main() -> None:
    file, test, *arguments = sys.argv[1:]
    elastic_ps.init()  # also for the tests that use no store of ours
    rename_stores()
    stand_in_for_nose()
    take_whole_floats()
    sys.path.insert(0, str(Path(file).parent))
    sys.argv = [file, *arguments]
    os.chdir(tempfile.mkdtemp())  # they write files beside themselves
    if test == "-":
        runpy.run_path(file, run_name="__main__")
    else:
        getattr(importlib.import_module(Path(file).stem), test)()


if __name__ == "__main__":
    main()
