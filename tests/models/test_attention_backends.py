"""Every attention backend refuses keys that the cache has no place for."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch

from specdec_core.errors import ModelNotSupportedError
from specdec_core.kernels.ops import NativeKernels
from specdec_core.kv_cache.paged import KVShape, PagedKV
from specdec_core.layers.attention.backend import AttentionBackend
from specdec_core.layers.attention.metadata import FAST_ATTENTION
from specdec_core.layers.attention.paged import CpuAttention, VarlenAttention
from specdec_core.layers.attention.sdpa import SdpaAttention
from specdec_core.model import ForwardInput


def computed(*args: Any, **kwargs: Any) -> Any:
    pytest.fail("keys of another shape reached the kernel")


class Kernels:
    attend = staticmethod(computed)


BACKENDS: list[AttentionBackend] = [
    SdpaAttention(2, FAST_ATTENTION),
    CpuAttention(cast(NativeKernels, Kernels())),
    VarlenAttention(computed),
]


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("shape", [(3, 2, 8), (3, 1, 16), (2, 2, 16)])
def test_keys_of_another_shape_are_refused(
    backend: AttentionBackend, shape: tuple[int, int, int]
) -> None:
    cpu = torch.device("cpu")
    kv = PagedKV(
        KVShape(num_layers=1, num_kv_heads=2, head_dim=16, dtype=torch.float32, device=cpu), 4
    )
    slot = kv.allocate()
    kv.extend({slot: 3})
    metadata = backend.plan(ForwardInput.of([(slot, (1, 2, 3), 1)], starts=[0]), kv)
    right, wrong = torch.zeros(3, 2, 16), torch.zeros(shape)
    for keys, values in ((wrong, right), (right, wrong)):
        with pytest.raises(ModelNotSupportedError, match=r"requires \(3, 2, 16\)"):
            backend.attend(metadata, kv.pools(0), torch.zeros(3, 4, 16), keys, values, 1.0)
