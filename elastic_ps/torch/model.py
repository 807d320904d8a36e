"""This module lists what a model consists of, by the keys under which the job holds it."""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set

import torch
from torch.nn.modules.batchnorm import _NormBase

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.torch.arrays import ModelArray, check_tensor, is_number

log = logging.getLogger(__name__)

GROUPS_FIRST = (
    "give torch.optim's optimizer all its groups before it is wrapped in an elastic.Optimizer; a frozen parameter may "
    "be in one, and is updated once it has gradients"
)
"""What to write instead of a group that comes later."""

_RENORMALISED = (torch.nn.Embedding, torch.nn.EmbeddingBag)

_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def parameter_keys(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[torch.Tensor, str]:
    """Return the key of each parameter that an optimizer updates, in the model's order.

    Raises:
        ConfigurationError: one is not the model's, or servers cannot hold it.
    """
    updated = {parameter for group in optimizer.param_groups for parameter in group["params"]}
    keys: dict[torch.Tensor, str] = {
        parameter: key_of(name) for name, parameter in model.named_parameters() if parameter in updated
    }
    for number, group in enumerate(optimizer.param_groups):
        for parameter in group["params"]:
            if parameter not in keys:
                raise ConfigurationError(
                    f"a parameter of shape {tuple(parameter.shape)} in group {number} of the optimizer is none of the "
                    "model's: give elastic.Optimizer the model whose parameters the optimizer was made with; of "
                    "several modules (a criterion with weights, say) make one, torch.nn.ModuleList([encoder, decoder])"
                )
    for parameter, key in keys.items():
        check_tensor(key[2:], parameter, "parameter")
    for module in model.modules():
        if isinstance(module, _RENORMALISED) and module.max_norm is not None and module.weight in keys:
            kind = f"{type(module).__name__} with max_norm={module.max_norm}"
            raise ConfigurationError(
                f"parameter {keys[module.weight][2:]} is of an {kind}: its forward pass changes the rows "
                "that this worker's own samples need, which no other worker sees. Make it "
                "without max_norm, and clip the rows that the model has looked up"
            )
    check_normalisations(model)
    return keys


def check_normalisations(model: torch.nn.Module) -> None:
    """Refuse normalisations over all workers: without a process group each would silently take its own samples.

    Raises:
        ConfigurationError: names the first that trains.
    """
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.SyncBatchNorm) and module.training:
            raise ConfigurationError(
                f"{own_name(name) or 'the model'} is a SyncBatchNorm: there is no process group over which it could "
                "normalise, so that each worker would take its own samples alone. Take BatchNorm, which does so, or "
                "a normalisation of single samples, as GroupNorm and LayerNorm"
            )


def check_memory(model: torch.nn.Module, keys: Mapping[torch.Tensor, str]) -> None:
    """Refuse a tensor that shares memory with a parameter that is trained: servers have new values for each.

    Those of one would be written over those of the other. Tensors with gaps between their elements are not looked at.

    Args:
        model: whose.
        keys: of the parameters that an optimizer updates.

    Raises:
        ConfigurationError: names both.
    """
    spans = []
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if _lies_in_one_piece(tensor):
            first = tensor.data_ptr()
            spans.append((first, first + tensor.nbytes, name, tensor in keys))
    end, known, is_trained = 0, "", False
    for low, high, name, trained in sorted(spans):
        if low < end and (trained or is_trained):
            raise ConfigurationError(
                f"{name} and {known} share memory and are two tensors of the model, so that new values of one would be "
                "written over those of the other: tie parameters as one (decoder.weight = encoder.weight, without "
                ".data), or give each its own memory"
            )
        if high > end:
            end, known, is_trained = high, name, trained


def _lies_in_one_piece(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has elements, in memory that no other's lie between."""
    is_plain = tensor.layout is torch.strided and not torch.nn.parameter.is_lazy(tensor)
    return is_plain and not tensor.is_meta and bool(tensor.numel()) and tensor.is_contiguous()


def members_of(optimizer: torch.optim.Optimizer) -> list[set[int]]:
    """Return the ids of the parameters that each group of an optimizer has."""
    return [set(map(id, group["params"])) for group in optimizer.param_groups]


def check_groups(optimizer: torch.optim.Optimizer, known: Sequence[Set[int]]) -> None:
    """Refuse groups that have other parameters than when the optimizer was wrapped.

    Nobody would sum the gradients of a new one, and servers take the numbers of the group that one was in.

    Args:
        optimizer: the script's own.
        known: its `members_of` then.

    Raises:
        ConfigurationError: a parameter has come, gone, or moved to another group.
    """
    found = members_of(optimizer)
    if found == known:
        return
    if set().union(*found) == set().union(*known):
        raise ConfigurationError(
            "a parameter is in another of the optimizer's groups than when elastic.Optimizer was made, and the job "
            "goes on by the one that it was in: leave the groups and their order as they are, and change the numbers "
            "(lr, weight_decay) of a group that has this parameter alone"
        )
    raise ConfigurationError(
        f"the optimizer's groups have other parameters than when elastic.Optimizer was made: {GROUPS_FIRST}"
    )


def check_parameters(arrays: Mapping[str, ModelArray], keys: Mapping[torch.Tensor, str]) -> None:
    """Refuse parameters that are no longer what the job was told of: its values would go where no model reads them.

    Args:
        arrays: of the model, by key.
        keys: of the parameters that an optimizer updates.

    Raises:
        ConfigurationError: one has another type, or its place in the model has another tensor.
    """
    for parameter, key in keys.items():
        array = arrays.get(key)
        if array is None or array.tensor is not parameter:
            raise ConfigurationError(
                f"parameter {key[2:]} is another tensor, or elsewhere in the model, than when elastic.Optimizer was "
                "made: prune, parametrize, tie and replace parameters before that, as load_state_dict(assign=True) "
                "does, too"
            )
        if parameter.dtype != array.first_dtype:
            raise ConfigurationError(
                f"parameter {key[2:]} is {parameter.dtype} now, and was {array.first_dtype} when the job began: "
                "convert the model before elastic.Optimizer is made; to evaluate it with fewer bits convert a "
                "copy.deepcopy(model), or back again before the next batch"
            )


def check_shapes(arrays: Mapping[str, ModelArray], before: Mapping[str, torch.Tensor]) -> None:
    """Refuse buffers that have another shape than when the job was told of them: nobody has a place for their values.

    Args:
        arrays: of the model, by key.
        before: its buffers, as they were then.

    Raises:
        ConfigurationError: names one.
    """
    for key, known in before.items():
        found = arrays[key].tensor
        if found is None or found.shape != known.shape:
            now = "is None now" if found is None else f"has the shape {tuple(found.shape)} now"
            raise ConfigurationError(
                f"buffer {key[2:]} {now}, and had the shape {tuple(known.shape)} when the job began: register it with "
                "the largest shape that it comes to have, or keep it as a plain attribute of the module, which is each "
                "worker's own"
            )


def tell_of_equal_names(keys: Collection[str], others: Iterable[Collection[str]]) -> None:
    """Say now that two models have a name in common: an export, perhaps days later, has one place for each.

    Args:
        keys: of what one optimizer's store holds.
        others: those of the other optimizers' stores.
    """
    if same := sorted(key for known in others for key in known if key in keys):
        log.warning(
            "%s is a name in two models of this script, each of an elastic.Optimizer of its own: elasticctl export "
            'refuses such a job. Make one model of both, torch.nn.ModuleDict({"G": netG, "D": netD}), and give that to '
            "each of them, as in elastic.Optimizer(both, optimizer)",
            same[0][2:],
        )


def key_of(name: str) -> str:
    """Return the key of a parameter or buffer by its name in the model, as `Tensor.key` has it."""
    return f"s:{own_name(name)}"


def own_name(name: str) -> str:
    """Return a name in a model as it would be had no part of the model been compiled by `torch.compile`."""
    return name.replace("_orig_mod.", "")


def tensors_of(model: torch.nn.Module, without: Iterable[torch.Tensor]) -> Iterator[tuple[str, ModelArray]]:
    """Yield the key and the array of each parameter and buffer that servers can hold, once; tied ones by one name.

    Args:
        model: whose.
        without: those that others look after. What is yielded is added.
    """
    seen = {id(tensor) for tensor in without}
    for prefix, module in model.named_modules():
        for owned, kind in ((module._parameters, "parameter"), (module._buffers, "buffer")):
            for name, tensor in owned.items():
                if tensor is None or id(tensor) in seen or (kind == "buffer" and not is_number(tensor)):
                    continue
                seen.add(id(tensor))
                full = f"{prefix}.{name}" if prefix else name
                check_tensor(full, tensor, kind)
                yield key_of(full), ModelArray(module, name)


def statistics(model: torch.nn.Module) -> set[str]:
    """Return the keys of the running statistics of the model's normalisations."""
    return {
        key_of(f"{prefix}.{name}" if prefix else name)
        for prefix, module in model.named_modules()
        if isinstance(module, _NormBase)
        for name in _STATISTICS
        if getattr(module, name, None) is not None
    }
