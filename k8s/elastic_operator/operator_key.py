"""This module reads the secret that jobs' tokens are made from, and makes it once where it is missing.

The chart does not make it: who renders it anew, as GitOps does, would make another one and cut running jobs off.
"""

import base64
import logging
import secrets
from collections.abc import Mapping
from typing import Any

from elastic_ps.core.errors import ConfigurationError
from k8s.foundation.api_server import ApiServer, Conflict, NotFound

log = logging.getLogger(__name__)

_FIELD = "key"
_LEAST_KEY = 16
_MADE_BYTES = 36


def operator_key(server: ApiServer, namespace: str, name: str, *, create: bool) -> bytes:
    """Return the key of this namespace's operators.

    Args:
        server: the API server.
        namespace: of the secret.
        name: of the secret; its field `key` counts.
        create: make it where it is missing. It cannot be changed then, only deleted.

    Raises:
        ConfigurationError: there is none, or it is too short.
        ApiError: it may not be read or made.
    """
    folder = f"/api/v1/namespaces/{namespace}/secrets"
    try:
        return _checked(server.get(f"{folder}/{name}"))
    except NotFound:
        pass
    if not create:
        raise ConfigurationError(
            f"there is no secret {name} in {namespace}, named by the chart's operator.existingSecret: make it, as by "
            f"kubectl -n {namespace} create secret generic {name} --from-literal={_FIELD}=$(openssl rand -hex 24)"
        )
    value = secrets.token_urlsafe(_MADE_BYTES)
    meta = {"name": name, "labels": {"app.kubernetes.io/managed-by": "dl2-operator"}}
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "immutable": True, "stringData": {_FIELD: value}}
    try:
        server.create(folder, body)
    except Conflict:  # another replica was sooner
        return _checked(server.get(f"{folder}/{name}"))
    log.info("made the secret %s/%s: jobs' tokens come from it, keep it as long as jobs run", namespace, name)
    return value.encode()


def _checked(secret: Mapping[str, Any]) -> bytes:
    """Return the key in a secret."""
    name, namespace = secret["metadata"]["name"], secret["metadata"]["namespace"]
    found = (secret.get("data") or {}).get(_FIELD)
    if found is None:
        raise ConfigurationError(f"the secret {name} in {namespace} has no field {_FIELD!r}")
    key = base64.b64decode(found).strip()
    if len(key) < _LEAST_KEY:
        raise ConfigurationError(
            f"the key in the secret {name} of {namespace} has {len(key)} bytes: give at least {_LEAST_KEY}"
        )
    return key
