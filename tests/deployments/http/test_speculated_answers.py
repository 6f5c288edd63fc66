"""Demanded calls behind reasoning, sampled over HTTP: the same with and without speculation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from deployments.text.grammars import Compiler
from deployments.text.model import TextModel
from specdec_core.config import PoolConfig, SpecMethod, SpeculationConfig
from specdec_core.leases import ReplicaInfo, Role
from specdec_core.models.numerics import Numerics
from specdec_core.replica import Replica
from tests.deployments.answering import CHATML, HERMES, entire, joined, text_model
from tests.deployments.http_server import run, server, stream
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


class RandomReplica(Replica):
    """A real replica, whose model's logits are a random function of all tokens."""

    def __init__(self, text: TextModel) -> None:
        self._model_here = TokenListModel(vocab_size=text.vocab_size, max_model_len=2_000)
        super().__init__(self._model_here, Role.TARGET, Compiler(lambda: text))

    def info(self, replica_id: str, incarnation: int) -> ReplicaInfo:
        return ReplicaInfo(
            replica_id=replica_id,
            role=Role.TARGET,
            incarnation=incarnation,
            num_blocks=self._model_here.num_blocks,
            block_size=self._model_here.block_size,
            max_model_len=self._model_here.max_model_len,
            vocab_size=self._model_here.vocab_size,
            model_digest="random",
            fingerprint="random",
            numerics=Numerics.FAST,
        )


@pytest.mark.parametrize("begins", [CHATML, f"{CHATML}<think>\n"])
def test_speculation_changes_no_demanded_call(begins: str) -> None:
    text = text_model(HERMES, begins, MARKS)
    (closing,) = text.encode_part("</think>")
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": f"{CALL}\nThe capital of France"}],
        "tools": [TOOL],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "logit_bias": {str(closing): 6},  # or the reasoning would seldom end
        "temperature": 0.9,
        "seed": 5,
        "n": NUM_CHOICES,
        "max_tokens": 200,
        "return_token_ids": True,
    }
    config = PoolConfig(speculation=SpeculationConfig(method=SpecMethod.NGRAM))

    async def scenario() -> None:
        settings = {"text": text, "config": config, "make_target": lambda: RandomReplica(text)}
        async with server(**settings) as (client, _):
            told = []
            for enabled in (True, False):
                asked = body | {"speculative": {"enabled": enabled}}
                whole = (await client.post(PATH, json=asked)).json()
                streamed = await stream(client, PATH, asked)
                ids = [choice["token_ids"] for choice in whole["choices"]]
                entries = [entire(whole, index) for index in range(NUM_CHOICES)]
                assert [joined(streamed, index) for index in range(NUM_CHOICES)] == entries
                told.append((ids, entries, whole["usage"]))
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
                assert any("reasoning" in one["message"] for one in ended)
            assert told[0] == told[1]

    run(scenario)
