"""Stand-ins for a model with weights and for a running server."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from benchmarks.gpu_report.networks import config_of
from benchmarks.gpu_report.settings import NetworkShape

_FIRST_SURROGATE, _AFTER_SURROGATES = 0xD800, 0xE000


def write_random_model(folder: Path, shape: NetworkShape, dtype: str) -> None:
    """Write a folder that loads like any other: random weights, a token for each character."""
    torch.manual_seed(0)
    config = config_of(shape)
    model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype))
    model.save_pretrained(folder)
    vocabulary = {_character(number): number for number in range(shape.vocab)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="!"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="!").save_pretrained(folder)


def _character(number: int) -> str:
    """Return the character of a token ID, from '!' on; surrogates are none."""
    place = 33 + number
    skipped = _AFTER_SURROGATES - _FIRST_SURROGATE if place >= _FIRST_SURROGATE else 0
    return chr(place + skipped)


@contextmanager
def answering() -> Iterator[str]:
    """The URL of a server that counts tokens and generates none."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Peer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()


class Peer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.answer({"data": [{"id": "rehearsed"}]})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer({"usage": {"completion_tokens": asked["max_tokens"]}})

    def answer(self, content: dict[str, object]) -> None:
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
