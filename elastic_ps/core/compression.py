"""This module compresses gradients, so that fewer bytes of them travel.

Compression has two parts. A worker *quantizes* each gradient where it is pushed, whatever way it will go; what the
quantization leaves out is added to the next gradient of the key (error feedback, Seide and others 2014; Karimireddy and
others 2019) where that matters. On the wire the quantized numbers are then *encoded*, without any further loss, however
they are cut into blocks. So training gives the same numbers over every transport and after every change of owners.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from reprlib import repr as short
from typing import Any

import numpy as np

from elastic_ps.core.errors import ConfigurationError, ProtocolError
from elastic_ps.core.segments import Array, Raw

_ARGUMENTS = {"float16": "", "bfloat16": "", "2bit": "threshold", "topk": "ratio"}
"""What each kind may be given beside its name."""

_MOST = {"threshold": float(np.finfo(np.float32).max), "ratio": 1.0}
_INDEX = np.dtype("<u4")


@dataclass(frozen=True)
class Compression:
    """A `Compression` says how gradients of float32 keys travel; others, and auxiliary state, travel as they are.

    Attributes:
        kind: "float16" or "bfloat16" (rounded; out of float16's range: inf), "2bit" (each element counts as
            `threshold`, its negative, or 0), "topk" (the largest elements of each tensor, others count as 0).
        threshold: of "2bit".
        ratio: of "topk": elements that travel, at least one of a tensor.
    """

    kind: str
    threshold: float = 0.5
    ratio: float = 0.01

    @staticmethod
    def of(params: Mapping[str, Any]) -> "Compression":
        """Read what a script asks for by a dictionary, as {"type": "2bit", "threshold": 0.5}.

        Raises:
            ConfigurationError: what is wrong, and what may be given.
        """
        kind = params.get("type")
        if not isinstance(kind, str) or kind not in _ARGUMENTS:
            raise ConfigurationError(
                f"gradient compression of type {short(kind)}: the type is one of {', '.join(_ARGUMENTS)}"
            )
        argument = _ARGUMENTS[kind]
        if wrong := sorted(set(params) - {"type", argument}):
            more = f"{argument!r} and nothing else" if argument else "nothing else"
            raise ConfigurationError(f"gradient compression {kind} takes {more}, not {short(wrong[0])}")
        if argument not in params:
            return Compression(kind)
        value, most = params[argument], _MOST[argument]
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:  # NaN is neither
            limit = f"above 0 and at most {most:g}"
            raise ConfigurationError(f"gradient compression {kind}: {argument} must be {limit}, not {short(value)}")
        return Compression(kind, **{argument: float(value)})

    @staticmethod
    def told(meta: Mapping[str, Any]) -> "Compression":
        """Read what `tell` has put into a frame's meta.

        Raises:
            ProtocolError: it is none of what `tell` makes.
        """
        try:
            return Compression.of(meta)
        except (ConfigurationError, TypeError) as error:
            raise ProtocolError(str(error)) from error

    def tell(self) -> dict[str, Any]:
        """Return what stands in a frame's meta, in the form that `of` takes."""
        argument = _ARGUMENTS[self.kind]
        return {"type": self.kind, **({argument: getattr(self, argument)} if argument else {})}

    @property
    def has_feedback(self) -> bool:
        """Return whether what the quantization leaves out is added to the next gradient."""
        return self.kind in ("2bit", "topk")

    def quantized(self, values: Array) -> Array:
        """Return the numbers that the servers get for `values`, a whole tensor: float32, one axis."""
        if self.kind == "float16":
            with np.errstate(over="ignore"):
                return values.astype(np.float16).astype(np.float32)
        if self.kind == "bfloat16":
            return _bfloat16(values)
        if self.kind == "2bit":
            bound = np.float32(self.threshold)
            return np.where(values >= bound, bound, np.where(values <= -bound, -bound, np.float32(0)))
        kept = np.zeros_like(values)
        count = max(1, round(len(values) * self.ratio))
        largest = np.argpartition(np.abs(values), len(values) - count)[len(values) - count :]
        kept[largest] = values[largest]
        return kept

    def encode(self, values: Array) -> Raw:
        """Return the bytes by which a part of a quantized tensor (float32, one axis) travels."""
        if self.kind == "float16":
            return values.astype("<f2").view(np.uint8)
        if self.kind == "bfloat16":
            return (values.view(np.uint32) >> 16).astype("<u2").view(np.uint8)
        if self.kind == "2bit":
            codes = (values > 0) * np.uint8(0b01) + (values < 0) * np.uint8(0b10)
            fours = np.pad(codes, (0, -len(codes) % 4)).reshape(-1, 4)
            packed: Raw = fours[:, 0] | fours[:, 1] << 2 | fours[:, 2] << 4 | fours[:, 3] << 6
            return packed
        places = np.flatnonzero(values)
        return np.concatenate([places.astype(_INDEX).view(np.uint8), values[places].view(np.uint8)])

    def encoded_bytes(self, elements: int) -> int:
        """Return the most bytes that `encode` makes of so many elements."""
        return {"float16": 2 * elements, "bfloat16": 2 * elements, "2bit": -(-elements // 4)}.get(
            self.kind, 8 * elements
        )

    def decode(self, data: Raw, out: Array) -> None:
        """Write the float32 elements that `encode` has made `data` of to `out`, which has one axis.

        Raises:
            ProtocolError: the bytes are not those of so many elements.
        """
        fixed = self.kind != "topk"
        if (data.nbytes != self.encoded_bytes(len(out))) if fixed else (data.nbytes % 8 or data.nbytes > 8 * len(out)):
            raise ProtocolError(f"a {self.kind} gradient of {len(out)} elements cannot have {data.nbytes} bytes")
        if self.kind == "float16":
            out[...] = data.view("<f2")
        elif self.kind == "bfloat16":
            out.view(np.uint32)[...] = data.view("<u2").astype(np.uint32) << 16
        elif self.kind == "2bit":
            codes = np.stack([data >> shift & 0b11 for shift in (0, 2, 4, 6)], axis=1).reshape(-1)[: len(out)]
            out[...] = np.array([0, self.threshold, -self.threshold, 0], np.float32)[codes]
        else:
            count = data.nbytes // 8
            places = data[: 4 * count].view(_INDEX)
            if count and int(places.max()) >= len(out):
                raise ProtocolError(f"a topk gradient of {len(out)} elements has no element {int(places.max())}")
            out[...] = 0
            out[places] = data[4 * count :].view(np.float32)


def _bfloat16(values: Array) -> Array:
    """Round to the nearest of bfloat16's numbers, ties to even; nan stays."""
    bits = values.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(values), np.float32(np.nan), rounded.view(np.float32))
