"""This module knows the address that others reach a coordinator by."""

import ipaddress
import os
import shlex
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


def join_options(host: str, address: str, token_file: str) -> str:
    """Return the options of `elasticrun --role` by which a node joins the job of this coordinator.

    Args:
        host: that others reach it by.
        address: the same, with the port.
        token_file: that holds the job's token; it may be read from another folder.
    """
    options = f"--coordinator {address} --token-file {shlex.quote(os.path.abspath(token_file))}"
    return options if _is_loopback(host) else f"{options} --host THIS_MACHINES_ADDRESS"


def _is_loopback(host: str) -> bool:
    """Return whether an address or a name means the machine that it is used on: nodes are there then, too."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:  # a name
        return host == "localhost"
