"""This module finds the address that others reach a coordinator by, where it listens on all of its machine."""

import ipaddress
import socket

from elastic_ps.core.errors import ConfigurationError

_ELSEWHERE = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}
"""Addresses for documentation (RFC 5737, RFC 3849): a route to them leads to other machines. Nothing is sent."""


def reachable(host: str) -> str:
    """Return `host`, or where that means all addresses, the one that this machine would reach others from.

    Raises:
        ConfigurationError: it has no way to others.
    """
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:  # a name
        return host
    if not address.is_unspecified:
        return host
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((_ELSEWHERE[family], 9))
            own = str(probe.getsockname()[0])
    except OSError as error:
        raise ConfigurationError(
            f"--host {host} listens on all addresses, and none of them leads to other machines ({error}): "
            "say with --advertise how this one is reached"
        ) from error
    return own if family == socket.AF_INET else f"[{own}]"
