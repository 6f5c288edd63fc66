"""The draft that ships for the demo model: its size, its card, and that it drafts."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from deployments.cli.generate.prompt_file import read_prompt_file
from deployments.config.service import ServiceConfig
from deployments.demo.drafts import DEMO_DRAFTS
from specdec_core import Request, SamplingParams, SchedulerConfig, SpecMethod
from specdec_core.engine import AlgorithmName, Engine
from specdec_core.loading.loader import LoadConfig, load_pair
from tests.decoding import fixed_k

DRAFT = DEMO_DRAFTS["smollm2-135m-draft"]
LARGEST_BYTES = 25_000_000


def card_settings() -> dict[str, Any]:
    """The JSON at the end of the card."""
    card = (DRAFT.data / "README.md").read_text()
    settings: dict[str, Any] = json.loads(card.rpartition("```json")[2].partition("```")[0])
    return settings


def test_its_weights_are_small_and_nothing_lies_beside_them() -> None:
    files = {path.name: path.stat().st_size for path in DRAFT.data.iterdir()}
    assert {"README.md", "config.json", "model.safetensors"} <= files.keys()
    assert files.keys() <= {"README.md", "config.json", "model.safetensors", "draft_vocab.json"}
    assert sum(files.values()) <= LARGEST_BYTES


def test_its_training_text_shares_no_run_of_words_with_spec_bench(spec_bench: Path) -> None:
    """Texts that did were dropped when it was made; the card says what they were compared with."""
    text = card_settings()["text"]
    turns = [turn for line in read_prompt_file(spec_bench) for turn in line.turns or []]
    assert text["excluded_sha256"] == hashlib.sha256("\0".join(turns).encode()).hexdigest()
    assert text["num_excluded_texts"] == len(turns)
    assert text["prompts_sha256"] == hashlib.sha256(b"").hexdigest(), "the target made them up"


def test_the_demo_is_served_with_it_where_a_draft_is_asked_for() -> None:
    assert ServiceConfig.of().draft is None
    config = ServiceConfig.of(draft_replicas=1)
    assert (config.draft, config.num_draft_replicas) == (DRAFT.name, 1)
    assert ServiceConfig.of(spec_method="ngram").draft is None
    assert ServiceConfig.of(model="another").draft is None


@pytest.mark.slow
def test_it_drafts_for_the_demo_model(demo_model: Path, tmp_path: Path) -> None:
    DRAFT.materialise(demo_model, tmp_path / "draft")
    # The target as test_demo_models loads it, whose self-check then is not made again.
    load = LoadConfig(kv_cache_tokens=8192)
    pair = load_pair(str(demo_model), str(tmp_path / "draft"), load)
    assert pair.draft is not None
    params = SamplingParams(temperature=0.0, max_tokens=48)
    request = Request(request_id="a", prompt_token_ids=tuple(range(500, 540)), params=params)
    speculation = fixed_k(SpecMethod.DRAFT_MODEL, 4)
    config = SchedulerConfig(speculation=speculation)
    engine = Engine(pair.target.model, pair.draft.model, config=config)
    plain = Engine(pair.target.model, algorithm=AlgorithmName.AUTOREGRESSIVE)
    assert list(engine.tokens(request)) == list(plain.tokens(request))
    assert engine.stats.num_accepted > 0
