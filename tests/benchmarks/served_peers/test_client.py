"""One client reads every server's stream, and sends all of them the same."""

from __future__ import annotations

import pytest

from benchmarks.served_peers.client import Asked, Busy, Client, busy, passes_of
from benchmarks.served_peers.engines import SERVERS
from benchmarks.served_peers.prompts import COPYING, COPYING_KINDS, LONG, SHORT, Prompts
from deployments.cli.bench.client import Usage
from deployments.cli.bench.load import LoadRun, RequestRecord
from specdec_core.errors import SpecdecError
from tests.benchmarks.served_peers.fake_server import FakeServer, listening

NAMES = {"vllm": "vllm", "llama": "llama-bf16", "specdec": "specdec"}


def ask(server: FakeServer, dialect: str, temperature: float = 0.0) -> Asked:
    with listening(server) as url:
        client = Client(SERVERS[NAMES[dialect]], url, timeout_s=30.0)
        return client.ask(
            Prompts().lines(SHORT, 3, 0),
            streams=2,
            max_tokens=4,
            temperature=temperature,
            fields={"speculative": {"enabled": False}} if dialect == "specdec" else {},
        )


@pytest.mark.parametrize("dialect", NAMES)
def test_tokens_are_those_that_the_server_counts_whatever_its_chunks_are(dialect: str) -> None:
    asked = ask(FakeServer(dialect), dialect)
    assert (asked.input_tokens, asked.tokens) == (120, 12)
    assert asked.seconds > 0
    assert 0 < asked.ttft_ms["p50"] <= asked.ttft_ms["p90"]
    has_gaps = dialect != "specdec"
    assert (asked.gap_ms["p99"] > 0) == has_gaps, "a single chunk with text has no gap"


def answered(start_s: float, *chunk_s: float) -> RequestRecord:
    """Two tokens a chunk."""
    weights = (1,) * len(chunk_s)
    return RequestRecord(
        start_s=start_s,
        end_s=chunk_s[-1],
        chunk_s=chunk_s,
        weights=weights,
        usage=Usage(10, 2 * len(chunk_s)),
    )


def test_streams_are_busy_until_the_first_has_nothing_left_to_ask_for() -> None:
    """The second of two streams ends alone: its last 3 seconds and chunk do not count."""
    records = [answered(1, 2, 3), answered(1, 3, 4), answered(3, 4, 5), answered(4, 5, 8)]
    assert busy(records, 2) == Busy(tokens=14, seconds=4)
    assert busy(records, 4) == Busy(tokens=6, seconds=2), "a request for each stream"
    assert busy(records[:2], 4) == Busy(tokens=6, seconds=2), "no request for some"


def page(num_passes: int, pass_s: float, added_s: float) -> str:
    """A part of /metrics of a server with two cells."""
    stage = "specdec_round_stage_seconds"
    labels = '{role="target",stage="verify",cell="%d"}'
    return f"""
{stage}_count{labels % 0} {num_passes - 1}
{stage}_count{labels % 1} 1
{stage}_sum{labels % 0} {pass_s}
{stage}_bucket{{role="target",stage="verify",le="0.5"}} 7
{stage}_sum{{role="target",stage="added"}} {added_s}
{stage}_count{{role="draft",stage="draft"}} 9
specdec_spec_decode_num_draft_tokens_total {2 * num_passes}
"""


def test_passes_are_those_that_the_server_counts_meanwhile() -> None:
    pages = page(4, 1.5, 0.25), page(7, 2.0, 0.75)
    counted = LoadRun(records=(), duration_s=1.0, metrics_pages=pages)
    assert passes_of(counted) == {
        "count": 3,
        "pass_s": 0.5,
        "between_s": 0.5,
        "drafted": 6,
        "accepted": 0,
    }
    assert passes_of(LoadRun(records=(), duration_s=1.0)) == {}


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_servers_get_the_same_request_but_for_what_keeps_their_caches_out(
    temperature: float,
) -> None:
    sent = {}
    for dialect in ("vllm", "llama"):
        server = FakeServer(dialect)
        ask(server, dialect, temperature)
        sent[dialect] = server.bodies
    own = [
        [{name: body.pop(name) for name in ("cache_salt", "cache_prompt") if name in body}]
        for bodies in sent.values()
        for body in bodies
    ]
    order = [sorted(map(str, bodies)) for bodies in sent.values()]
    assert order[0] == order[1]
    assert own[3:] == [[{"cache_prompt": False}]] * 3
    assert len({str(fields) for fields in own[:3]}) == 3, "a salt for each request"
    for body in sent["vllm"]:
        assert body["ignore_eos"] is True
        assert body["temperature"] == temperature
        assert ("seed" in body) == (temperature > 0)


def test_a_request_may_switch_speculation_off() -> None:
    server = FakeServer("specdec")
    ask(server, "specdec")
    assert all(body["speculative"] == {"enabled": False} for body in server.bodies)


def test_an_answer_of_another_length_is_no_figure() -> None:
    with pytest.raises(SpecdecError, match=r"answers of \[3\] tokens, asked for 4"):
        ask(FakeServer("vllm", ends_early=True), "vllm")


def test_an_answer_that_the_model_ends_counts_from_its_first_token() -> None:
    server = FakeServer("vllm", ends_early=True)
    with listening(server) as url:
        asked = Client(SERVERS["vllm"], url, timeout_s=30.0).ask(
            Prompts().lines("edit", 3, 0),
            streams=2,
            max_tokens=4,
            temperature=0.0,
            fields={},
            ignore_eos=False,
        )
    assert (asked.tokens, asked.decode_tokens) == (9, 6)
    assert 0 < asked.decode_s <= 3 * asked.seconds
    assert all(body["ignore_eos"] is False for body in server.bodies)


def test_the_set_of_text_to_copy_has_a_kind_for_each_category() -> None:
    prompts = Prompts()
    whole = prompts.lines(COPYING, 100, 0)
    assert {line.category for line in whole} == set(COPYING_KINDS) - {COPYING}
    for kind in COPYING_KINDS[1:]:
        assert {line.category for line in prompts.lines(kind, 24, 0)} == {kind}


def test_64_prompts_ship_each_kind_once_for_32_streams() -> None:
    prompts = Prompts()
    for kind, least, most in ((SHORT, 8, 24), (LONG, 450, 800)):
        texts = [line.first_text for line in prompts.lines(kind, 32, 0)]
        assert len(set(texts)) == 32
        assert all(least <= len(text.split()) <= most for text in texts), "words"
    assert prompts.lines(SHORT, 2, 31)[1] == prompts.lines(SHORT, 1, 0)[0]
