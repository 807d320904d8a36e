"""A checkpoint is of a job with servers or without: this module says which of them a job of either kind restores."""

from coordinator.core.checkpoints.manifest import Manifest
from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.optimizer import OWN_RULE, OptimizerSpec


def check_mode(url: str, saved: Manifest, all_reduces: bool) -> None:
    """Refuse a checkpoint that a job cannot go on from in its mode.

    Args:
        url: of its folder.
        saved: its manifest.
        all_reduces: the job that is to restore it has no servers.

    Raises:
        ConfigurationError: says why, and what to do instead.
    """
    if why := _without_servers(saved) if all_reduces else _with_servers(saved):
        raise ConfigurationError(f"{url} cannot be restored: {why}")


def _with_servers(saved: Manifest) -> str:
    own = [spec for spec in map(OptimizerSpec.from_json, saved.optimizers) if spec is not None and spec.is_scripts_own]
    if not own:
        return ""
    return f"servers cannot run its optimizer {own[0].class_name}: restore it with --mode all-reduce, as it was saved"


def _without_servers(saved: Manifest) -> str:
    instead = "restore it with servers, without --mode all-reduce"
    if saved.data is not None and not saved.data.is_sync:
        return f'its job was "{saved.data.consistency}", which needs servers: {instead}'
    if len({tensor.store for tensor in saved.model.tensors}) > 1:
        return f"it has several key stores, or elastic.Optimizers, and jobs without servers have one: {instead}"
    names = [spec.name for spec in map(OptimizerSpec.from_json, saved.optimizers) if spec is not None]
    if not names or not names[0].startswith(("torch.", OWN_RULE)):
        has = f"its optimizer is {names[0]}" if names else "it has no optimizer"
        return f"{has}, and jobs without servers run those of torch.optim: {instead}"
    return ""
