"""How many tokens a GPU's cache holds, by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from specdec_core.errors import InvalidRequestError
from specdec_core.kv_cache.spec import FullAttentionSpec
from specdec_core.loading import memory as memory_module
from specdec_core.loading.loader import LoadConfig
from specdec_core.loading.memory import (
    RECORDING_BYTES,
    DeviceMemory,
    KVNeeds,
    available_host_bytes,
    peak_bytes,
    plan_kv_blocks,
)

GIB = 2**30
H200 = DeviceMemory(free=120 * GIB, total=140 * GIB, own=20 * GIB)
"""20 GB of weights are gone."""
PLAIN = KVNeeds(spec=FullAttentionSpec(16, bytes_per_block=1024), num_layers=32, reads_blocks=True)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of what the kernel says: 24 GiB, of which files are cached in nearly all."""
    lines = ("MemTotal: 25165824 kB", "MemFree: 524288 kB", "MemAvailable: 16777216 kB")
    (tmp_path / "meminfo").write_text("\n".join(lines))
    monkeypatch.setattr(memory_module, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(memory_module, "_CGROUP", tmp_path)
    return tmp_path


def _limit(machine: Path, limit: str) -> None:
    (machine / "memory.max").write_text(f"{limit}\n")
    (machine / "memory.current").write_text(f"{6 * GIB}\n")
    stat = f"anon {2 * GIB}\ninactive_file {3 * GIB}\nactive_file {GIB}\n"
    (machine / "memory.stat").write_text(stat)


def test_cached_files_do_not_count_as_taken(machine: Path) -> None:
    assert available_host_bytes() == 16 * GIB
    _limit(machine, "max")
    assert available_host_bytes() == 16 * GIB


def test_a_container_has_no_more_than_its_limit(machine: Path) -> None:
    """Of the 6 GiB that it has, 3 are files that nobody reads any more."""
    _limit(machine, str(8 * GIB))
    assert available_host_bytes() == (8 - 6 + 3) * GIB
    _limit(machine, str(40 * GIB))
    assert available_host_bytes() == 16 * GIB


def test_where_the_kernel_says_nothing_free_pages_count(machine: Path) -> None:
    (machine / "meminfo").unlink()
    assert available_host_bytes() > 0


def test_the_cache_gets_what_is_left_of_the_share() -> None:
    assert plan_kv_blocks(H200, PLAIN, 0.9) == (120 - 14) * GIB // 1024
    assert plan_kv_blocks(H200, PLAIN, 1.0) == 120 * GIB // 1024


def test_the_share_is_a_replicas_own() -> None:
    """A second one on the same GPU gets as much, whether the first has taken its part or not."""
    together = DeviceMemory(free=108 * GIB, total=140 * GIB, own=16 * GIB)
    alone, second = replace(together, free=124 * GIB), replace(together, free=61 * GIB)
    num_blocks = (63 - 16) * GIB // 1024
    for memory in (alone, together, second):
        assert plan_kv_blocks(memory, PLAIN, 0.45) == num_blocks


def test_what_others_have_taken_is_not_planned() -> None:
    crowded = DeviceMemory(free=10 * GIB, total=140 * GIB, own=16 * GIB)
    assert plan_kv_blocks(crowded, PLAIN, 0.9) == 10 * GIB // 1024


def test_a_pass_needs_its_workspace_and_recorded_ones_another() -> None:
    needs = replace(PLAIN, workspace_bytes=2 * GIB)
    assert plan_kv_blocks(H200, needs, 0.9) == 104 * GIB // 1024
    recorded = replace(needs, is_recorded=True)
    assert plan_kv_blocks(H200, recorded, 0.9) == (102 * GIB - RECORDING_BYTES) // 1024


def test_logits_of_recorded_passes_have_memory_of_their_own() -> None:
    needs = replace(PLAIN, logit_bytes=3 * GIB)
    assert plan_kv_blocks(H200, needs, 0.9) == 106 * GIB // 1024
    recorded = replace(needs, is_recorded=True)
    assert plan_kv_blocks(H200, recorded, 0.9) == (103 * GIB - RECORDING_BYTES) // 1024


def test_the_choice_of_a_verification_is_counted_once() -> None:
    needs = replace(PLAIN, workspace_bytes=2 * GIB, choice_bytes=3 * GIB, is_recorded=True)
    assert plan_kv_blocks(H200, needs, 0.9) == (99 * GIB - RECORDING_BYTES) // 1024


def test_keys_that_are_gathered_need_two_layers_more() -> None:
    needs = replace(PLAIN, reads_blocks=False)
    assert plan_kv_blocks(H200, needs, 0.9) == 106 * GIB * 32 // (1024 * 34)


def test_a_draft_on_the_same_gpu_has_as_many_blocks() -> None:
    needs = replace(PLAIN, companion_bytes=6 * GIB, companion_bytes_per_block=512)
    num_blocks = plan_kv_blocks(H200, needs, 0.9)
    assert num_blocks == 100 * GIB // 1536
    assert num_blocks * (1024 + 512) + 6 * GIB <= 106 * GIB


def test_a_gpu_without_room_is_refused_with_the_figures() -> None:
    full = DeviceMemory(free=13 * GIB, total=140 * GIB, own=127 * GIB)
    figures = r"13\.0 of 140\.0 GiB .* has 127\.0 GiB; .*_utilization=0\.9"
    with pytest.raises(InvalidRequestError, match=figures):
        plan_kv_blocks(full, PLAIN, 0.9)


def test_a_gpu_that_others_have_filled_is_refused_with_what_they_have() -> None:
    crowded = DeviceMemory(free=0, total=140 * GIB, own=16 * GIB)
    with pytest.raises(InvalidRequestError, match=r"other processes have 124\.0 GiB\. Lower"):
        plan_kv_blocks(crowded, PLAIN, 0.9)


@pytest.mark.parametrize("utilization", [0.0, 1.1, -0.5])
def test_an_absurd_share_is_named(utilization: float) -> None:
    with pytest.raises(InvalidRequestError, match=f"gpu_memory_utilization .* {utilization}"):
        LoadConfig(gpu_memory_utilization=utilization)


def test_a_cpu_has_no_workspace_to_plan() -> None:
    assert peak_bytes(lambda: 1 / 0, torch.device("cpu")) == 0
