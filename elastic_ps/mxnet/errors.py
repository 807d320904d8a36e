"""This module makes the kvstore's errors MXNet's too: a script's `except mx.MXNetError` catches them.

elastic_ps.core knows no framework. What it raises is given its second class here, where it leaves the adapter.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import FunctionType
from typing import Any, TypeVar

import mxnet as mx

from elastic_ps.core.errors import ConfigurationError, ElasticError

_Kind = TypeVar("_Kind")


class KVStoreError(ConfigurationError, mx.MXNetError):  # type: ignore[misc]  # mxnet has no types
    """The kvstore was asked for something that cannot be done; the message names the key and says how to mend it."""


class KVStoreLost(ElasticError, mx.MXNetError):  # type: ignore[misc]
    """The kvstore could not do what was asked, though the call was right; `__cause__` is the runtime's own error."""


@contextmanager
def mxnet_errors() -> Iterator[None]:
    """Give the runtime's errors that leave this block their second class."""
    try:
        yield
    except mx.MXNetError:
        raise
    except ConfigurationError as error:
        raise KVStoreError(str(error)) from error
    except ElasticError as error:
        raise KVStoreLost(str(error)) from error


def raises_mxnet_errors(kind: type[_Kind]) -> type[_Kind]:
    """Put `mxnet_errors` around every method and property of a class."""
    for name, member in list(vars(kind).items()):
        if isinstance(member, FunctionType):
            setattr(kind, name, _guarded(member))
        elif isinstance(member, property) and member.fget is not None:
            setattr(kind, name, property(_guarded(member.fget), doc=member.__doc__))
    return kind


def _guarded(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        with mxnet_errors():
            return method(*args, **kwargs)

    return guarded
