"""Demanded calls behind reasoning, sampled over HTTP: the same with and without speculation."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from deployments.text.grammars import Compiler
from deployments.text.tokenizer import TextModel, load_text_model
from specdec_core.config import (
    KPolicyName,
    Numerics,
    SchedulerConfig,
    SpecMethod,
    SpeculationConfig,
)
from specdec_core.loading.loader import DType, LoadConfig, load_model
from specdec_core.messages import ReplicaInfo, Role
from specdec_core.model import replica_info
from specdec_core.worker.replica import Replica
from tests.deployments.answering import CHATML, HERMES, entire, joined, text_model
from tests.deployments.http_server import server, stream
from tests.fakes import TokenListModel

pytest.importorskip("llguidance")

PATH = "/v1/chat/completions"
MARKS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
CITIES = ["Rome", "Paris"]
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": CITIES}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
NUM_CHOICES = 6
_TEMPLATE = Path(__file__).parents[2] / "clients" / "chat_template.jinja"


ASKED: dict[str, Any] = {
    "messages": [{"role": "user", "content": f"{CALL}\nThe capital of France"}],
    "tools": [TOOL],
    "tool_choice": "required",
    "parallel_tool_calls": False,
    "temperature": 0.9,
    "n": NUM_CHOICES,
    "max_tokens": 200,
    "return_token_ids": True,
}


class Target(Replica):
    """A real replica of a model, with the library's grammars."""

    def __init__(self, model: Any, text: TextModel) -> None:
        self._served = model
        super().__init__(model, Role.TARGET, Compiler(lambda: text))

    def info(self, replica_id: str, incarnation: int) -> ReplicaInfo:
        return replica_info(
            self._served,
            Role.TARGET,
            replica_id,
            incarnation,
            model_digest="model",
            fingerprint="model",
            numerics=Numerics.EXACT,
        )


@pytest.mark.parametrize("begins", [CHATML, f"{CHATML}<think>\n"])
def test_speculation_changes_no_demanded_call(begins: str) -> None:
    text = text_model(HERMES, begins, MARKS)
    model = TokenListModel(vocab_size=text.vocab_size, max_model_len=2_000)
    (closing,) = text.encode_part("</think>")
    bias = {"logit_bias": {str(closing): 6}}  # or the reasoning would seldom end
    entries = compared(model, text, ASKED | bias | {"seed": 5})
    assert any("reasoning" in one["message"] for one in entries if one["calls"])


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(4))
def test_speculation_changes_no_demanded_call_of_the_demo_model(
    demo_model: Path, seed: int
) -> None:
    loaded = load_model(
        str(demo_model),
        LoadConfig(dtype=DType.BFLOAT16, numerics=Numerics.EXACT, kv_cache_tokens=8192),
    )
    text = load_text_model(
        str(demo_model),
        chat_template=_TEMPLATE,
        tool_call_parser="hermes",
        reasoning_parser="qwen3",
    )
    compared(loaded.model, text, ASKED | {"seed": seed})


def compared(model: Any, text: TextModel, body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the choices, which are the same whole and streamed, drafted or not."""
    # A fixed K: the default policy may stop drafting where other work makes passes slow.
    speculation = SpeculationConfig(method=SpecMethod.NGRAM, k_policy=KPolicyName.FIXED)
    config = SchedulerConfig(speculation=speculation)

    async def scenario() -> list[dict[str, Any]]:
        settings = {"text": text, "config": config, "make_target": lambda: Target(model, text)}
        async with server(**settings) as (client, _):
            told = []
            for enabled in (True, False):
                asked = body | {"speculative": {"enabled": enabled}}
                whole = (await client.post(PATH, json=asked)).json()
                streamed = await stream(client, PATH, asked)
                ids = [choice["token_ids"] for choice in whole["choices"]]
                entries = [entire(whole, index) for index in range(NUM_CHOICES)]
                assert [joined(streamed, index) for index in range(NUM_CHOICES)] == entries
                counts = {**whole["usage"], "prompt_tokens_details": None}
                told.append((ids, entries, counts))
                one = (await client.post(PATH, json=asked | {"n": 1})).json()
                assert entire(one) == entries[0]
                stats = one["metrics"]["speculative_decoding"]
                assert (stats["num_accepted_draft_tokens"] > 0) == enabled
                ended = [one for one in entries if one["finish_reason"] == "tool_calls"]
                assert len(ended) > NUM_CHOICES // 2
                for one in ended:
                    (call,) = one["calls"]
                    assert json.loads(call["arguments"])["city"] in CITIES
                    assert one["message"]["content"] == ""
            assert told[0] == told[1]
            return entries

    return asyncio.run(scenario())
