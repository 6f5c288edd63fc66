"""RMSNorms in exact numerics: only plain ones are replaced, and no bit changes on a CPU."""

from __future__ import annotations

from typing import Any, TypeGuard

import pytest
import torch
from torch import Tensor, nn

from specdec_core.batch_invariance.module import plain_modules, undo_exact
from specdec_core.batch_invariance.norm import ExactNorm, make_norms_exact
from specdec_core.errors import NotExactError
from specdec_core.layers.elementwise import RMSNorm
from specdec_core.loading.self_check import make_exact
from specdec_core.model import score
from specdec_core.worker.model_runner import ModelRunner
from tests.models.fake_gpu import on_gpu
from tests.tiny_models import ARCHITECTURES, VOCAB, exact_model, tiny_model

pytestmark = pytest.mark.usefixtures("searched_once")

DTYPES = (torch.float32, torch.bfloat16)


class PlainRMSNorm(nn.Module):
    """As Llama's and a hundred others of transformers."""

    def __init__(self, width: int = 64, epsilon: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width))
        self.variance_epsilon = epsilon

    def normed(self, rows: Tensor) -> Tensor:
        wide = rows.float()
        return wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)

    def forward(self, rows: Tensor) -> Tensor:
        return self.weight * self.normed(rows).to(rows.dtype)


class OneMoreRMSNorm(PlainRMSNorm):
    """Gemma's: weights are kept less 1."""

    def forward(self, rows: Tensor) -> Tensor:
        return (1.0 + self.weight) * self.normed(rows).to(rows.dtype)


class LateRMSNorm(PlainRMSNorm):
    """OLMo's: rounded behind the weight."""

    def forward(self, rows: Tensor) -> Tensor:
        return (self.weight * self.normed(rows)).to(rows.dtype)


class OtherEpsilonRMSNorm(PlainRMSNorm):
    """Its epsilon is not the one that it names."""

    def forward(self, rows: Tensor) -> Tensor:
        wide = rows.float()
        normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-3)
        return self.weight * normed.to(rows.dtype)


class GatedRMSNorm(PlainRMSNorm):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.ones(64))


class PlainNorm(PlainRMSNorm):
    """Of another name: nobody said what it is."""


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("architecture", sorted(ARCHITECTURES))
def test_plain_norms_of_transformers_are_replaced_in_every_bit(
    architecture: str, dtype: torch.dtype
) -> None:
    model = tiny_model(architecture).to(dtype)
    ids = torch.arange(3, 60).unsqueeze(0)
    with torch.inference_mode():
        before = model(input_ids=ids).logits
        plain = [m for m in model.modules() if type(m).__name__.endswith("RMSNorm")]
        make_norms_exact(model)
        replaced = [m for m in model.modules() if isinstance(m, ExactNorm)]
        assert [m.plain for m in replaced] == plain
        assert torch.equal(model(input_ids=ids).logits, before)
    undo_exact(model)
    assert [m for m in model.modules() if type(m).__name__.endswith("RMSNorm")] == plain
    assert not any(isinstance(m, ExactNorm | RMSNorm) for m in model.modules())


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_plain_definition_is_known_by_what_it_computes(dtype: torch.dtype) -> None:
    model = nn.Sequential(PlainRMSNorm(epsilon=1e-5).to(dtype))
    make_norms_exact(model)
    assert isinstance(model[0], ExactNorm)


@pytest.mark.parametrize(
    "variant", [OneMoreRMSNorm, OtherEpsilonRMSNorm, GatedRMSNorm, PlainNorm, LateRMSNorm]
)
def test_a_variant_is_left_alone(variant: Any) -> None:
    model = nn.Sequential(variant().bfloat16())
    make_norms_exact(model)
    assert type(model[0]) is variant


def test_rows_of_another_type_are_widened_as_before() -> None:
    norm, rows = PlainRMSNorm(), torch.randn(3, 64).bfloat16()
    with torch.inference_mode():
        normed = ExactNorm(norm)(rows)
        assert normed.dtype == torch.float32
        assert torch.equal(normed, norm(rows))


@pytest.mark.parametrize("dtype", DTYPES)
def test_ids_and_logits_of_an_exact_model_stay(dtype: torch.dtype) -> None:
    """On a CPU, beside the same model with transformers' own norms."""
    scored = []
    for has_plain_norms in (False, True):
        model = exact_model("glm4", dtype)
        assert any(isinstance(m, ExactNorm) for m in model.module.modules())
        if has_plain_norms:
            undo_exact(model.module)
        slot = model.allocate()
        scored.append(score(model, [(slot, range(3, 60), 57)]))
    assert torch.equal(*scored)
    assert torch.equal(scored[0].argmax(-1), scored[1].argmax(-1))


def test_a_refused_model_gets_its_norms_back() -> None:
    def refuse(model: object) -> None:
        raise NotExactError("a row differs")

    model = ModelRunner(tiny_model("glm4"), vocab_size=VOCAB, kv_cache_tokens=4096)
    with pytest.raises(NotExactError):
        make_exact(model, check=refuse)
    assert not any(isinstance(m, ExactNorm) for m in model.module.modules())


def test_norms_of_a_model_on_a_gpu_are_compared_on_the_host(waits: list[str]) -> None:
    model = on_gpu(waits, "glm4")
    make_norms_exact(model.module)
    assert any(isinstance(m, ExactNorm) for m in model.module.modules())
    assert not any(plain_modules(model.module, _is_glm4_norm))
    assert waits == []


def _is_glm4_norm(module: nn.Module) -> TypeGuard[nn.Module]:
    return type(module).__name__ == "Glm4RMSNorm"
