"""Ask a running `specdec serve` over HTTP: python examples/http_client.py [url]."""

from __future__ import annotations

import json
import sys
import urllib.request

url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
question = {"role": "user", "content": "What is the capital of France?"}
body = {
    "messages": [question],
    "max_tokens": 32,
    "temperature": 0,
    "stream": True,
    "stream_options": {"include_usage": True},
}
request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode())
with urllib.request.urlopen(request) as lines:
    for line in lines:
        kind, _, data = line.decode().strip().partition(": ")
        if kind != "data" or data == "[DONE]":  # a line of another kind is a comment
            continue
        chunk = json.loads(data)
        for choice in chunk["choices"]:
            print(choice["delta"].get("content", ""), end="", flush=True)
        if "metrics" in chunk:
            print(f"\n{chunk['metrics']['speculative_decoding']}")
