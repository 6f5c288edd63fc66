"""Grammars are read before a request is queued, where no other request waits."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest

from deployments.ingress.grammar_check import GrammarCheck
from deployments.text import grammar_process
from deployments.text.grammar_limits import DEFAULT_LIMITS, GrammarLimits
from deployments.text.grammar_process import GrammarReader
from deployments.text.structured_output import choice, json_schema
from specdec_core.errors import InvalidRequestError
from specdec_core.grammar import GrammarKind, GrammarSpec
from tests.deployments.http_server import completion, server

pytest.importorskip("llguidance")

END = {2}
HOSTILE = {
    "repeats": GrammarSpec(GrammarKind.REGEX, "(a{999}){1000}"),
    "properties": json_schema(
        {"type": "object", "properties": {f"field {i}": {"type": "string"} for i in range(4000)}}
    ),
    "labels": choice([f"{i} is a label" for i in range(2000)]),
    "alternatives": GrammarSpec(GrammarKind.REGEX, "|".join(f".*{i}.*" for i in range(2000))),
    "nested": GrammarSpec(GrammarKind.REGEX, "(" * 900 + "a" + "){1,9}" * 900),
    "rules": GrammarSpec(
        GrammarKind.LARK,
        "start: r0\n" + "\n".join(f'r{i}: r{i + 1} | "{i}"' for i in range(5000)) + '\nr5000: "x"',
    ),
}
"""Costly, each in another part of the library. Some are refused."""


async def longest_gap_s(work: asyncio.Task[None]) -> float:
    """The longest time that the event loop gave nobody a turn while `work` ran."""
    longest, last = 0.0, time.perf_counter()
    while not work.done():
        await asyncio.sleep(0)
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
        await asyncio.sleep(0.001)
        last = time.perf_counter()
    return longest


@pytest.mark.parametrize("name", HOSTILE)
async def test_the_event_loop_goes_on_while_a_grammar_is_read(name: str) -> None:
    async def check() -> None:
        with contextlib.suppress(InvalidRequestError):
            await GrammarCheck(DEFAULT_LIMITS, END).check(HOSTILE[name])

    # Other work on the machine makes single gaps longer; what the loop itself does comes back.
    gaps_s = [await longest_gap_s(asyncio.create_task(check())) for _ in range(3)]
    assert min(gaps_s) < 0.1, gaps_s


async def test_a_grammar_that_costs_too_much_is_refused_and_the_next_one_is_read() -> None:
    check = GrammarCheck(GrammarLimits(max_seconds=0.3), END)
    for name in ("repeats", "properties"):
        with pytest.raises(InvalidRequestError, match=r"max_grammar_seconds=0\.3 of CPU time"):
            await check.check(HOSTILE[name])
        await check.check(GrammarSpec(GrammarKind.REGEX, f"a+{name}"))


async def test_a_grammar_with_too_many_characters_is_refused() -> None:
    check = GrammarCheck(GrammarLimits(max_chars=50), END)
    with pytest.raises(InvalidRequestError, match=r"has 51 characters.*max_grammar_chars=50"):
        await check.check(GrammarSpec(GrammarKind.REGEX, "a" * 51))


async def test_a_limit_above_the_default_holds_where_the_grammar_is_read() -> None:
    check = GrammarCheck(GrammarLimits(max_chars=300_000), END)
    await check.check(json_schema({"type": "object", "description": "a" * 250_000}))


def test_a_reader_that_does_not_start_is_no_fault_of_the_grammar(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grammar_process.sys, "executable", "/bin/false")
    with pytest.raises(RuntimeError, match="did not start"):
        GrammarReader(DEFAULT_LIMITS).check(GrammarSpec(GrammarKind.REGEX, "a"))


async def test_a_known_grammar_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    check, spec = GrammarCheck(DEFAULT_LIMITS, END), GrammarSpec(GrammarKind.REGEX, "a+")
    await check.check(spec)
    monkeypatch.setattr(GrammarReader, "check", None)
    await check.check(spec)


async def test_a_model_without_an_end_takes_no_grammar() -> None:
    with pytest.raises(InvalidRequestError, match="needs a model with an end-of-sequence"):
        await GrammarCheck(DEFAULT_LIMITS, frozenset()).check(GrammarSpec(GrammarKind.REGEX, "a"))


async def test_many_requests_are_read_at_a_time() -> None:
    check = GrammarCheck(DEFAULT_LIMITS, END)
    specs = [GrammarSpec(GrammarKind.REGEX, f"a{{{number}}}") for number in range(1, 40)]
    await asyncio.gather(*map(check.check, specs))


async def test_a_refusal_comes_before_the_headers_of_a_stream() -> None:
    async with server(grammar_limits=GrammarLimits(max_chars=50)) as (client, _):
        body = completion(stream=True, structured_outputs={"regex": "a" * 51})
        answer = await client.post("/v1/completions", json=body)
        assert answer.status_code == 400
        assert "max_grammar_chars=50" in answer.json()["error"]["message"]


def test_a_reader_whose_process_was_ended_starts_another() -> None:
    reader = GrammarReader(DEFAULT_LIMITS)
    try:
        reader.check(json_schema({"type": "object"}))
        assert reader._process is not None
        reader._process.kill()
        reader._process.wait()
        reader.check(json_schema({"type": "array"}))
    finally:
        reader.close()
