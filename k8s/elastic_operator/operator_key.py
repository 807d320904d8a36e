"""The secret that jobs' tokens are made from: read from the cluster, and made there once where it is missing.

Not by the chart: who renders it anew, as GitOps does, would make another one and cut running jobs off.
"""

import base64
import logging
import secrets

from kubernetes.aio import client

from elastic_ps.core.errors import ConfigurationError

log = logging.getLogger(__name__)

_FIELD = "key"
_LEAST_KEY = 16
_MADE_BYTES = 36
_NOT_FOUND, _CONFLICT = 404, 409


async def operator_key(core: client.CoreV1Api, namespace: str, name: str, create: bool) -> bytes:
    """Return the key of this namespace's operators.

    Args:
        core: connection.
        namespace: of the secret.
        name: of the secret; its field `key` counts.
        create: make it where it is missing. It cannot be changed then, only deleted.

    Raises:
        ConfigurationError: there is none, or it is too short.
        client.ApiException: it may not be read or made.
    """
    try:
        return _checked(await core.read_namespaced_secret(name, namespace), namespace)
    except client.ApiException as error:
        if error.status != _NOT_FOUND:
            raise
    if not create:
        raise ConfigurationError(
            f"there is no secret {name} in {namespace}, named by the chart's operator.existingSecret: make it, as by "
            f"kubectl -n {namespace} create secret generic {name} --from-literal={_FIELD}=$(openssl rand -hex 24)"
        )
    value = secrets.token_urlsafe(_MADE_BYTES)
    meta = client.V1ObjectMeta(name=name, labels={"app.kubernetes.io/managed-by": "dl2-operator"})
    body = client.V1Secret(metadata=meta, immutable=True, string_data={_FIELD: value})
    try:
        await core.create_namespaced_secret(namespace, body)
    except client.ApiException as error:
        if error.status != _CONFLICT:  # else another replica was sooner
            raise
        return _checked(await core.read_namespaced_secret(name, namespace), namespace)
    log.info("made the secret %s/%s: jobs' tokens come from it, keep it as long as jobs run", namespace, name)
    return value.encode()


def _checked(secret: client.V1Secret, namespace: str) -> bytes:
    """Return the key in a secret."""
    name = (secret.metadata and secret.metadata.name) or ""
    found = (secret.data or {}).get(_FIELD)
    if found is None:
        raise ConfigurationError(f"the secret {name} in {namespace} has no field {_FIELD!r}")
    key = base64.b64decode(found).strip()
    if len(key) < _LEAST_KEY:
        raise ConfigurationError(
            f"the key in the secret {name} of {namespace} has {len(key)} bytes: give at least {_LEAST_KEY}"
        )
    return key
