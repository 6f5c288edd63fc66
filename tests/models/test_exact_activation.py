"""An activation in exact numerics: a number's bits do not depend on its place in the call."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from transformers.activations import ACT2FN

from specdec_core.batch_invariance.activation import ExactActivation, make_activations_exact
from specdec_core.batch_invariance.module import undo_exact
from specdec_core.config import Numerics
from tests.tiny_models import exact_model

pytestmark = pytest.mark.usefixtures("searched_once")

ROW_COUNTS = (2, 3, 7, 40, 95, 200)


@pytest.fixture(params=[1, 2, 3])
def num_threads(request: pytest.FixtureRequest) -> Iterator[int]:
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(1)


def depends_on_company(activation: nn.Module, rows: Tensor) -> bool:
    alone = torch.cat([activation(row[None, None]) for row in rows], dim=1)[0]
    together = [activation(rows[None, -count:])[0] for count in ROW_COUNTS]
    return not all(torch.equal(some, alone[-len(some) :]) for some in together)


@pytest.mark.covering(2)
@pytest.mark.parametrize("width", [1, 96, 97, 344, 1536, 16_448, 33_000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["silu", "gelu", "gelu_pytorch_tanh"])
def test_a_row_never_sees_its_company(
    name: str, dtype: torch.dtype, width: int, num_threads: int
) -> None:
    torch.manual_seed(0)
    rows = (3 * torch.randn(max(ROW_COUNTS), width)).to(dtype)
    assert not depends_on_company(ExactActivation(ACT2FN[name]), rows)


@pytest.mark.parametrize(("width", "threads"), [(344, 1), (97, 1), (1664, 3)])
def test_a_plain_activation_does_see_it(width: int, threads: int) -> None:
    """The promise is not empty: what rows or threads leave over is computed otherwise."""
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    rows = 3 * torch.randn(max(ROW_COUNTS), width)
    assert depends_on_company(ACT2FN["silu"], rows)
    assert not depends_on_company(ExactActivation(ACT2FN["silu"]), rows)
    torch.set_num_threads(1)


@pytest.mark.parametrize("shape", [(1, 5, 64), (1, 5, 70), (1, 0, 70), (3, 2, 7)])
def test_it_is_the_activation_still(shape: tuple[int, ...]) -> None:
    numbers = torch.randn(shape)
    output = ExactActivation(nn.SiLU())(numbers)
    assert output.is_contiguous()
    torch.testing.assert_close(output, nn.functional.silu(numbers))


def test_activations_are_wrapped_and_come_back() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.SiLU(), nn.LayerNorm(4), nn.Tanh())
    before = list(model)
    make_activations_exact(model)
    kinds = [type(module) for module in model]
    assert kinds == [nn.Linear, ExactActivation, nn.LayerNorm, ExactActivation]
    undo_exact(model)
    assert list(model) == before


@pytest.mark.covering(1)
@pytest.mark.parametrize("architecture", ["llama", "glm4"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [344, 97])
def test_a_model_of_any_ffn_width_can_be_exact(
    architecture: str, dtype: torch.dtype, width: int
) -> None:
    model = exact_model(architecture, dtype, intermediate_size=width)
    assert model.numerics is Numerics.EXACT
