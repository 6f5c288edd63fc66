"""Ask a running `specdec serve` with the official client: pip install openai, then run this."""

from __future__ import annotations

import sys

from openai import OpenAI

url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
client = OpenAI(base_url=f"{url}/v1", api_key="-")
(model,) = client.models.list()
stream = client.chat.completions.create(
    model=model.id,
    messages=[{"role": "user", "content": "What is the capital of France?"}],
    temperature=0,
    max_tokens=32,
    stream=True,
    stream_options={"include_usage": True},
    extra_body={"speculative": {"num_speculative_tokens": 2}},
)
for chunk in stream:
    for choice in chunk.choices:
        print(choice.delta.content or "", end="", flush=True)
    if chunk.usage is not None:
        print(f"\n{chunk.model_extra['metrics']['speculative_decoding']}")
