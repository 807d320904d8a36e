"""`EarlyGradients` are sent while the backward pass makes others."""

import threading
import weakref
from collections.abc import Callable, Sequence

import torch

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.worker.script import early_sends

Send = Callable[[Sequence[torch.Tensor]], bool]


class EarlyGradients:
    """`EarlyGradients` collects parameters whose gradients a backward pass has made, and sends them in portions.

    Args:
        send: a method that sends the gradients of some parameters; it returns False where the step has to send them
            itself. Parameters' hooks keep this object, and not that of the method.

    Attributes:
        sent: gradients of the step under way that have been sent, by parameter.
    """

    def __init__(self, send: Send):
        self._send = weakref.WeakMethod(send)
        self._thread = threading.get_ident()
        self.sent: dict[torch.Tensor, torch.Tensor | None] = {}
        self._waiting: list[torch.Tensor] = []
        self._bytes = 0

    def made(self, parameter: torch.Tensor) -> None:
        """Take note that a parameter has its gradient, and send a portion where there is one.

        Raises:
            ConfigurationError: it has been sent, and is another one now.
        """
        send = self._send()
        if send is None:
            return  # the script has let its optimizer go
        if threading.get_ident() != self._thread:
            return  # of a graph on a device, or within another backward pass: the step sends it
        if parameter in self.sent:
            raise ConfigurationError(
                "loss.backward() is called once more in this batch, and gradients of the first call have been sent: "
                "call it once in each batch, or make elastic.Optimizer without overlap=True"
            )
        self._waiting.append(parameter)
        self._bytes += parameter.nbytes
        if self._bytes >= early_sends.PORTION_BYTES:
            waiting = dict.fromkeys(self._waiting)
            if send(list(waiting)):
                self.sent.update((each, each.grad) for each in waiting)
            self._forget_waiting()

    def begin_step(self) -> None:
        """Forget the step before: its exchange is made, or the script has left it."""
        self.sent.clear()
        self._forget_waiting()

    def _forget_waiting(self) -> None:
        self._waiting.clear()
        self._bytes = 0
