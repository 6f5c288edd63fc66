"""The modelled device keeps its times by a scripted clock, and is recorded like a GPU."""

from __future__ import annotations

import threading

import pytest
import torch

from benchmarks.host_time.device import ModelledDevice, Pass, numbers_wait_for
from benchmarks.host_time.pass_times import NO_TIME, PassTimes
from benchmarks.host_time.scripted import ScriptedModel
from specdec_core.model import ForwardInput, score
from specdec_core.sampling_params import SamplingParams

TIMES = PassTimes({(1, 1): 1.0, (1, 5): 2.0, (9, 1): 3.0, (9, 5): 8.0})


class Clock:
    """Time that passes by sleeping, a little too long, and by looking at it."""

    def __init__(self, oversleep: float = 0.0) -> None:
        self.now = 100.0
        self.sleeps: list[float] = []
        self._oversleep = oversleep

    def __call__(self) -> float:
        self.now += 1e-6
        return self.now

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += seconds + self._oversleep


def test_an_exact_sleep_needs_no_spinning() -> None:
    clock = Clock()
    device = ModelledDevice(clock=clock, sleep=clock.sleep, spin_s=0.0)
    device.launch(0.005)
    device.wait()
    assert len(clock.sleeps) == 1
    assert clock.now == pytest.approx(device.passes[0].ended, abs=5e-6)


def device_of(clock: Clock, *, is_async: bool = True) -> ModelledDevice:
    return ModelledDevice(is_async=is_async, clock=clock, sleep=clock.sleep)


def test_a_launch_returns_at_once_and_a_wait_ends_with_the_pass() -> None:
    clock = Clock()
    device = device_of(clock)
    device.launch(0.007)
    assert clock.now - 100.0 < 1e-4
    device.wait()
    assert clock.now == pytest.approx(100.007, abs=1e-5)


def test_without_async_a_launch_waits() -> None:
    clock = Clock()
    device_of(clock, is_async=False).launch(0.007)
    assert clock.now == pytest.approx(100.007, abs=1e-5)


def test_passes_run_one_after_another_from_the_launch_on() -> None:
    clock = Clock()
    device = device_of(clock)
    device.launch(0.002, rows=8, tokens=1)
    device.launch(0.003)
    device.wait()
    clock.now += 0.010
    device.launch(0.001)
    first, second, third = device.passes
    assert first == Pass(first.launched, first.launched, first.launched + 0.002, 8, 1)
    assert second.started == first.ended > second.launched
    assert second.ended == pytest.approx(second.started + 0.003)
    assert third.started == third.launched > second.ended + 0.009


def test_a_pass_that_has_ended_is_not_waited_for() -> None:
    clock = Clock()
    device = device_of(clock)
    device.launch(0.001)
    clock.now += 0.5
    device.wait()
    assert not clock.sleeps


def test_sleeps_become_shorter_by_what_they_overslept() -> None:
    clock = Clock(oversleep=3e-4)
    device = device_of(clock)
    late = []
    for _ in range(60):
        device.launch(0.005)
        device.wait()
        late.append(clock.now - device.passes[-1].ended)
    assert late[0] > 2e-4
    assert max(late[-10:]) < 2e-5


def test_reading_numbers_waits_only_in_the_thread_that_launched() -> None:
    clock = Clock()
    device = device_of(clock)
    with numbers_wait_for(device):
        device.launch(0.5)
        other = threading.Thread(target=torch.ones(1).tolist)
        other.start()
        other.join()
        assert not clock.sleeps
        assert torch.ones(1).tolist() == [1.0]
    assert clock.now == pytest.approx(100.5, abs=1e-4)
    assert torch.Tensor.tolist.__name__ == "tolist"


def test_times_are_linear_between_and_beyond_the_points() -> None:
    assert TIMES(1, 1) == 1.0
    assert TIMES(9, 5) == 8.0
    assert TIMES(5, 3) == pytest.approx((1.5 + 5.5) / 2)
    assert TIMES(17, 1) == pytest.approx(5.0)
    assert TIMES(1, 9) == pytest.approx(3.0)
    assert NO_TIME(128, 9) == 0.0


def test_a_factor_multiplies_all_times() -> None:
    assert TIMES.scaled(0.5).scaled(0.5)(9, 5) == pytest.approx(2.0)


class _Echo:
    """Sequence n continues with its length."""

    def begin(self, ids: object) -> int:
        return 7

    def following(self, number: int, num_ids: int, count: int) -> list[int]:
        assert number == 7
        return list(range(num_ids - count + 1, num_ids + 1))


@pytest.fixture
def device() -> ModelledDevice:
    return device_of(Clock())


@pytest.fixture
def model(device: ModelledDevice) -> ScriptedModel:
    model = ScriptedModel(
        device, TIMES, _Echo(), vocab_size=64, kv_cache_tokens=1024, max_model_len=128
    )
    device.passes.clear()  # those of the check at load
    return model


def test_a_recorded_pass_takes_the_time_of_its_shape(
    device: ModelledDevice, model: ScriptedModel
) -> None:
    slots = [model.allocate() for _ in range(8)]
    score(model, [(slot, (1,) * 40, 0) for slot in slots])
    (unrecorded,) = device.passes
    assert (unrecorded.rows, unrecorded.tokens) == (8, 40)
    device.passes.clear()
    logits = score(model, [(slot, (1, 2, 3), 2) for slot in slots])
    assert logits.argmax(1).tolist() == [42, 43] * 8
    (launched,) = device.passes
    assert (launched.rows, launched.tokens) == (8, 3)
    assert launched.ended - launched.started == pytest.approx(TIMES(8, 3))


def test_a_draft_launches_a_pass_for_every_step(
    device: ModelledDevice, model: ScriptedModel
) -> None:
    slot = model.allocate()
    score(model, [(slot, (1,) * 40, 0)])
    device.passes.clear()
    batch = ForwardInput.of([(slot, (1, 2), 1)])
    drafted = model.draft(batch, [(3, SamplingParams(temperature=0.0))], 0.0)
    assert drafted == [(42, 43, 44)]
    assert [(one.rows, one.tokens) for one in device.passes] == [(1, 2), (1, 1), (1, 1)]
    assert model.cached_len(slot) == 44
