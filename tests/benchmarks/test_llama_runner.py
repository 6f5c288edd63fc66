"""llama.cpp as a runner of the offline comparison: what it is started with and asked for."""

from __future__ import annotations

import json
import stat
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.peers.messages import Decoded, Load, Turn
from benchmarks.peers.runners.llama_server import LlamaRunner, body_of, command_of, figures_of

SERVER = """#!{python}
import json, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer({{}})
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        ids = [len(asked["prompt"])] * asked["n_predict"]
        self.answer({{"tokens": ids, "timings": {{"draft_n": 4, "draft_n_accepted": 3}}}})
    def answer(self, content):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

port = int(sys.argv[sys.argv.index("--port") + 1])
ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.fixture
def load(tmp_path: Path) -> Load:
    program = tmp_path / "build/bin/llama-server"
    program.parent.mkdir(parents=True)
    program.write_text(SERVER.format(python=sys.executable))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return Load(
        target="model.gguf",
        method="plain",
        max_batch_size=8,
        max_model_len=512,
        dtype="bfloat16",
        threads=2,
        unused_id=0,
        options={"llama_cpp": str(tmp_path), "weights": "bfloat16"},
    )


TURN = Turn(
    method="plain",
    batch_size=2,
    prompts=[[5, 6, 7], [8]],
    max_tokens=2,
    temperature=0.8,
    top_p=0.9,
    seed=3,
)


def test_each_sequence_of_the_largest_batch_has_a_slot(load: Load) -> None:
    command = " ".join(command_of(load, "http://127.0.0.1:18499"))
    assert "-np 8 -t 2 -c 4096" in command
    assert "--port 18499" in command
    assert "--spec-type" not in command


def test_who_drafts_and_how_much_is_settled_by_flags(load: Load) -> None:
    ngram = command_of(replace(load, method="ngram", spec_tokens=4), "http://h:1")
    assert ngram[-4:] == ["--spec-type", "ngram-simple", "--spec-ngram-simple-size-m", "4"]
    draft = command_of(
        replace(load, method="draft_model", spec_tokens=4, drafts={"d": "d.gguf"}), "http://h:1"
    )
    assert draft[-6:] == [
        *("--spec-type", "draft-simple", "-md", "d.gguf"),
        *("--spec-draft-n-max", "4"),
    ]


def test_ids_go_in_and_all_that_were_asked_for_come_out_in_order(load: Load) -> None:
    runner = LlamaRunner(load)
    try:
        answer = runner.decode(TURN)
    finally:
        runner._server.kill()
        runner._server.wait()
    assert isinstance(answer, Decoded)
    assert answer.token_ids == [[3, 3], [1, 1]]
    assert answer.figures == {"drafted": 8, "accepted": 6}


def test_nothing_but_temperature_and_top_p_cuts_what_may_be_drawn() -> None:
    body = json.loads(json.dumps(body_of([1], TURN)))
    assert (body["top_k"], body["min_p"], body["top_p"]) == (0, 0.0, 0.9)
    assert body["ignore_eos"] is True
    assert body["cache_prompt"] is False
    assert figures_of([{"predicted_n": 2}]) == {}
