"""Exact numerics: a row's logits have the same bits alone, in any batch and in any chunking.

`make_exact` finds the shapes that guarantee this on this machine and brings the model into them. It
then proves the result on the model itself, before the first request (algorithm.md section 4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from specdec_core.batch_invariance.activation import make_activations_exact
from specdec_core.batch_invariance.attention import find_attention_shape
from specdec_core.batch_invariance.linear import make_linears_exact
from specdec_core.batch_invariance.module import ExactModule, undo_exact
from specdec_core.batch_invariance.norm import make_norms_exact
from specdec_core.batch_invariance.size_classes import ClassTable
from specdec_core.errors import NotExactError
from specdec_core.layers.attention.metadata import ANY_ATTENTION, AttentionShape
from specdec_core.model import Row, score
from specdec_core.worker.model_runner import ModelRunner, kv_shape

_CHECKED_LENGTHS = (3, 33, 71, 130, 260, 410, 700)
_NUM_SINGLE = 4
"""Last tokens of a sequence. Alone they run one by one; in a batch they run as one proposal."""


@torch.inference_mode()
def check_rows(model: ModelRunner) -> None:
    """Compare random rows alone, token by token, with the same rows in a batch, bit for bit.

    In the batch their prompts have other chunks, and the passes hold proposals and prefills of
    other rows. Raises NotExactError with the name of the first operation whose rows influence each
    other.
    """
    sequences = _random_sequences(model)
    alone = torch.cat([_logits_alone(model, ids) for ids in sequences])
    in_batch = _logits_in_batch(model, sequences)
    if not torch.equal(alone, in_batch):
        num_wrong = int((alone != in_batch).any(dim=-1).sum())
        operation = _first_dependent(model, sequences)
        raise NotExactError(
            f"exact numerics are not possible here: {num_wrong} of {len(alone)} logit "
            "rows change with the rest of their batch; first operation that differs: "
            f"{operation}"
        )


def make_exact(model: ModelRunner, check: Callable[[ModelRunner], None] = check_rows) -> ClassTable:
    """Bring `model` into exact numerics, which `check` proves. If the check fails, restore the
    model and raise NotExactError, naming the operation that differs."""
    table = ClassTable(linears=make_linears_exact(model.module), attention=_attention_shape(model))
    model.class_table = table
    if model.device.type == "cpu":
        make_activations_exact(model.module)
    make_norms_exact(model.module)
    try:
        check(model)
    except NotExactError:
        make_fast(model)
        raise
    return table


def make_fast(model: ModelRunner) -> list[tuple[str, ExactModule]]:
    """Bring the model back into fast numerics. Return its exact modules by name."""
    model.class_table = None
    return undo_exact(model.module)


@contextmanager
def in_fast_numerics(model: ModelRunner) -> Iterator[None]:
    """Run an exact model in fast numerics within the context; restore it afterwards."""
    table = model.class_table
    exact = make_fast(model)
    try:
        yield
    finally:
        for name, module in exact:
            model.module.set_submodule(name, module)
        model.class_table = table


def _attention_shape(model: ModelRunner) -> AttentionShape:
    """Return the shapes for attention. Any shape keeps the bits in our kernels, which take a lane
    for each query and the keys in order. The same holds for attention over blocks, which never
    splits the keys."""
    if model.kernels is not None or model.block_attention is not None:
        return ANY_ATTENTION
    config = model.module.config
    shape = kv_shape(config, model.dtype, model.device)
    return find_attention_shape(shape, config.num_attention_heads, model.max_model_len)


def _random_sequences(model: ModelRunner) -> list[list[int]]:
    """Return random sequences of as many lengths as the model and its cache hold."""
    generator = torch.Generator().manual_seed(0)
    sequences: list[list[int]] = []
    room = model.num_free_blocks
    for length in (min(length, model.max_model_len) for length in _CHECKED_LENGTHS):
        room -= model.kv_cache_spec.blocks_for(length)
        if room >= 0:
            ids = torch.randint(model.vocab_size, (length,), generator=generator)
            sequences.append(ids.tolist())
    return sequences


def _num_single(ids: Sequence[int]) -> int:
    return min(_NUM_SINGLE, len(ids))


def _logits_alone(model: ModelRunner, ids: Sequence[int]) -> Tensor:
    prompt_len = len(ids) - _num_single(ids)
    slot = model.allocate()
    try:
        score(model, [(slot, ids[:prompt_len], 0)])
        return torch.cat([score(model, [(slot, [token], 1)]) for token in ids[prompt_len:]])
    finally:
        model.free(slot)


def _logits_in_batch(model: ModelRunner, sequences: Sequence[Sequence[int]]) -> Tensor:
    slots = [model.allocate() for _ in sequences]
    try:
        for rows in _batch_passes(slots, sequences):
            logits = score(model, rows)
        return logits
    finally:
        for slot in slots:
            model.free(slot)


def _batch_passes(slots: Sequence[int], sequences: Sequence[Sequence[int]]) -> Iterator[list[Row]]:
    """Yield thirds of the prompts, first those of every second sequence; then the rest of all
    prompts."""
    pairs = list(zip(slots, sequences, strict=True))
    cuts = [(len(ids) - _num_single(ids)) // 3 for ids in sequences]
    for first in (0, 1):
        some = list(zip(pairs, cuts, strict=True))[first::2]
        yield [(slot, ids[:cut], 0) for (slot, ids), cut in some]
    rests = zip(pairs, cuts, strict=True)
    yield [(slot, ids[cut : len(ids) - _num_single(ids)], 0) for (slot, ids), cut in rests]
    yield [(slot, ids[-_num_single(ids) :], _num_single(ids)) for slot, ids in pairs]


def _first_dependent(model: ModelRunner, sequences: Sequence[Sequence[int]]) -> str:
    """Return the first module whose rows in a batch differ from the same rows alone. If none
    differs, the cause is attention."""
    dependent: list[str] = []

    def hook(name: str, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if not dependent and _depends_on_batch(module, args, output):
            kind = module if isinstance(module, ExactModule) else type(module).__name__
            dependent.append(f"{name} ({kind})")

    handles = [
        module.register_forward_hook(
            lambda module, args, output, name=name: hook(name, module, args, output)
        )
        for name, module in _operations("", model.module)
    ]
    try:
        with model.eager():
            _logits_in_batch(model, sequences)
    finally:
        for handle in handles:
            handle.remove()
    others = "attention (scaled_dot_product_attention)"
    return dependent[0] if dependent else others if model.kernels is None else "the CPU kernels"


def _operations(name: str, module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the smallest modules. A wrapped module counts as one."""
    children = [] if isinstance(module, ExactModule) else list(module.named_children())
    if not children:
        yield name, module
    for child_name, child in children:
        yield from _operations(f"{name}.{child_name}".strip("."), child)


def _depends_on_batch(module: nn.Module, args: tuple[Any, ...], output: Any) -> bool:
    """Return True if a row of a call on [T, ...] or [1, T, ...] differs from the same row alone."""
    if len(args) != 1 or not isinstance(args[0], Tensor) or not isinstance(output, Tensor):
        return False
    rows = args[0]
    axis = 1 if rows.dim() >= 3 and rows.shape[0] == 1 else 0
    if rows.dim() < 2 or rows.shape[: axis + 1] != output.shape[: axis + 1]:
        return False
    alone = [module.forward(row) for row in torch.split(rows, 1, dim=axis)]
    return bool(alone) and not torch.equal(torch.cat(alone, dim=axis), output)
