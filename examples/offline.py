"""Decode with the library, in this process: python examples/offline.py MODEL [DRAFT]."""

from __future__ import annotations

import sys

from transformers import AutoTokenizer

from specdec_core import Engine, Request, SamplingParams

target, draft = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
engine = Engine.load(target, draft)  # without a draft model, prompt lookup drafts
tokenizer = AutoTokenizer.from_pretrained(target)

question = [{"role": "user", "content": "What is the capital of France?"}]
prompt = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_dict=True)
request = Request(
    request_id="1",
    prompt_token_ids=tuple(prompt["input_ids"]),
    params=SamplingParams(temperature=0, max_tokens=32),
)
for event in engine.generate([request]):
    print(tokenizer.decode(event.token_ids, skip_special_tokens=True), end="", flush=True)
print()
