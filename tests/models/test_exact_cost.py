"""What exact numerics cost a GPU decides whether `auto` takes them; the log says what it was."""

from __future__ import annotations

from typing import Any

import pytest

from specdec_core.batch_invariance.linear import ExactLinear
from specdec_core.config import Numerics
from specdec_core.layers.attention.metadata import ANY_ATTENTION
from specdec_core.loading import exact_cost
from specdec_core.loading import loader as loading
from specdec_core.loading import profiler as timing
from specdec_core.loading.exact_cost import cost_of_exact
from specdec_core.loading.loader import apply_numerics
from specdec_core.messages import Role
from specdec_core.step_times import StepTime
from specdec_core.worker.cuda_graphs.recorder import DirectRecorder
from specdec_core.worker.model_runner import ModelRunner
from tests.models.exact_table import keep_to_classes
from tests.models.fake_gpu import on_gpu, over_blocks
from tests.tiny_models import VOCAB, tiny_model


def num_wrapped(model: ModelRunner) -> int:
    return sum(isinstance(module, ExactLinear) for module in model.module.modules())


class Timing:
    """Passes take a second, those of an exact model as much more as is said for their rows."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **costs: float) -> None:
        self._costs = costs
        self.timed: list[tuple[Numerics, bool]] = []
        monkeypatch.setattr(exact_cost, "time_steps", self)
        monkeypatch.setattr(loading, "make_exact", self._make_exact)

    def __call__(self, model: ModelRunner, role: Role, sizes: Any) -> tuple[StepTime, ...]:
        assert role is Role.TARGET
        self.timed.append((model.numerics, num_wrapped(model) > 0))
        costs = self._costs if model.numerics is Numerics.EXACT else dict.fromkeys(self._costs, 0.0)
        return tuple(StepTime(1, int(rows[1:]), 1.0 + cost) for rows, cost in costs.items())

    def _make_exact(self, model: ModelRunner, check: object) -> None:
        keep_to_classes(model, ANY_ATTENTION)


def gpu_model(waits: list[str]) -> ModelRunner:
    return on_gpu(waits, recorder=DirectRecorder(), block_attention=over_blocks)


def test_auto_is_exact_where_that_costs_little(
    waits: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = Timing(monkeypatch, _1=0.02, _40=0.09)
    model = gpu_model(waits)
    with caplog.at_level("INFO"):
        apply_numerics(model, Numerics.AUTO)
    assert model.numerics is Numerics.EXACT
    assert model.attention_shape == ANY_ATTENTION
    assert num_wrapped(model) > 0
    assert "+2% of the time of 1 rows, +9% of the time of 40 rows" in caplog.text
    assert set(asked.timed) == {(Numerics.EXACT, True), (Numerics.FAST, False)}


def test_auto_is_fast_where_exact_passes_of_any_size_take_over_a_tenth_longer(
    waits: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Timing(monkeypatch, _1=0.25, _40=0.0)
    model = gpu_model(waits)
    apply_numerics(model, Numerics.AUTO)
    assert model.numerics is Numerics.FAST
    assert num_wrapped(model) == 0
    assert "+25% of the time of 1 rows" in caplog.text
    assert "--numerics exact" in caplog.text


def test_whoever_asks_for_exact_numerics_has_them_whatever_they_cost(
    waits: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Timing(monkeypatch, _1=9.0)
    model = gpu_model(waits)
    apply_numerics(model, Numerics.EXACT)
    assert model.numerics is Numerics.EXACT
    assert asked.timed == []


def test_a_cpu_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Timing(monkeypatch, _1=9.0)
    model = ModelRunner(tiny_model("llama"), vocab_size=VOCAB, kv_cache_tokens=1024)
    apply_numerics(model, Numerics.AUTO)
    assert model.numerics is Numerics.EXACT
    assert asked.timed == []


@pytest.mark.thorough
def test_passes_are_timed_in_both_numerics_and_the_model_stays_as_it_was(
    waits: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "_BUDGET_S", 600.0)
    monkeypatch.setattr(timing, "_MOST_REPEATS", 2)
    monkeypatch.setattr(exact_cost, "_SIZES", ((1, 1), (4, 3)))
    model = gpu_model(waits)
    keep_to_classes(model, ANY_ATTENTION)
    table, exact = model.class_table, num_wrapped(model)
    costs = cost_of_exact(model)
    assert set(costs) == {1, 12}
    assert (model.class_table, num_wrapped(model)) == (table, exact)
    assert model.num_free_blocks == model.num_blocks
