"""Work whose cost the caller chooses is bounded, and no other request waits for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from deployments.api.http.schemas import ChatBody, CompletionBody, parse_body
from deployments.api.http.unknown_fields import UnknownFields
from deployments.ingress.generation import GenerationService
from deployments.ingress.generation_request import GenerationRequest
from deployments.ingress.request_limits import (
    INLINE,
    MAX_ALLOWED_IDS,
    MAX_STOP_CHARS,
    Lanes,
    RequestLimits,
)
from deployments.text.chat_rendering import ChatOptions
from deployments.text.tokenizer import TextModel
from specdec_core.config import SpeculationConfig
from specdec_core.errors import InvalidRequestError
from tests.deployments.fake_text import FakeBackend, fake_text_model
from tests.deployments.ingress.test_client_resume import ScriptedPool
from tests.deployments.text.tokenizers import text_model

LONG = 1_000_000


def service_of(text: TextModel, **limits: int) -> GenerationService:
    pool: Any = ScriptedPool((1,))
    return GenerationService(
        text,
        pool,
        model_name="m",
        speculation=SpeculationConfig(),
        limits=RequestLimits(**limits),
    )


@pytest.mark.parametrize("short", [1, INLINE, INLINE + 1, 20_000, 20_001, 200_000])
async def test_short_work_does_not_wait_for_long_work(short: int) -> None:
    lanes, may_end = Lanes(), threading.Event()
    long_ones = [asyncio.create_task(lanes.run(LONG, may_end.wait)) for _ in range(9)]
    await asyncio.sleep(0.01)
    assert await lanes.run(short, lambda: "short") == "short"
    assert not any(task.done() for task in long_ones)
    may_end.set()
    await asyncio.gather(*long_ones)


async def test_a_flood_keeps_one_thread_busy() -> None:
    lanes, names = Lanes(), set[str]()

    def note() -> None:
        names.add(threading.current_thread().name)

    await asyncio.gather(*(lanes.run(LONG, note) for _ in range(50)))
    assert len(names) == 1
    assert threading.current_thread().name not in names


def test_what_the_work_raises_reaches_its_caller() -> None:
    def fail() -> None:
        raise InvalidRequestError("too bad")

    for size in (1, LONG):
        with pytest.raises(InvalidRequestError, match="too bad"):
            asyncio.run(Lanes().run(size, fail))


class WatchedBackend(FakeBackend):
    """Notes the thread of each call."""

    def __init__(self) -> None:
        self.threads: set[threading.Thread] = set()
        self.num_encoded = 0

    def encode(self, sequence: str, *, add_special_tokens: bool) -> Any:
        self.num_encoded += 1
        self.threads.add(threading.current_thread())
        return super().encode(sequence, add_special_tokens=add_special_tokens)

    def decode(self, ids: Any, skip_special_tokens: bool) -> str:
        self.threads.add(threading.current_thread())
        return super().decode(ids, skip_special_tokens)


def watched() -> tuple[TextModel, WatchedBackend]:
    text, backend = fake_text_model(), WatchedBackend()
    object.__setattr__(text, "backend", backend)
    return text, backend


WORK: dict[str, Callable[[GenerationService], Any]] = {
    "prompts": lambda service: service.encode_all(["a" * 100] * 128),
    "chat": lambda service: service.encode_chat([{"role": "user", "content": "a"}]),
    "detokenize": lambda service: service.decode_all([1] * 9_000, "tokens"),
    "echo": lambda service: service.echo([((1,) * 100, None)] * 128, has_offsets=True),
}


@pytest.mark.parametrize("name", WORK)
def test_the_work_of_a_request_counts_in_total(name: str) -> None:
    """Many short prompts are as much work as a long one."""
    text, backend = watched()
    asyncio.run(WORK[name](service_of(text)))
    assert threading.current_thread() not in backend.threads
    assert backend.threads


async def test_templates_of_callers_who_left_keep_their_places(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    num_running, most, may_end = 0, 0, threading.Event()

    def render(*_: Any) -> tuple[int, ...]:
        nonlocal num_running, most
        num_running += 1
        most = max(most, num_running)
        may_end.wait(10)
        num_running -= 1
        return (1,)

    monkeypatch.setattr(TextModel, "encode_chat", render)
    service = service_of(fake_text_model())
    service._trusts_chat_templates = True
    own = ChatOptions(template="x")
    for _ in range(6):
        leaving = asyncio.create_task(service.encode_chat([], own))
        await asyncio.sleep(0.02)
        leaving.cancel()
        await asyncio.wait([leaving])
    may_end.set()
    assert await service.encode_chat([], own) == (1,)
    assert most == 2


async def test_the_event_loop_runs_while_a_long_prompt_is_tokenized(tmp_path: Path) -> None:
    """The tokenizer releases the interpreter's lock only in calls for batches."""
    text = text_model("byte level", tmp_path)
    object.__setattr__(text, "max_model_len", LONG)
    ids = text.encode_part("The capital of France is. " * 4_000)

    async def ticks_during(call: Any) -> int:
        task, count = asyncio.create_task(call), 0
        while not task.done():
            await asyncio.sleep(0.001)
            count += 1
        await task
        return count

    service = service_of(text)
    assert await ticks_during(service.encode("The capital of France is. " * 20_000)) > 10
    assert await ticks_during(service.decode_all(ids * 20, "tokens")) > 10


def test_sampling_is_resolved_once_for_all_prompts() -> None:
    """Otherwise 128 prompts make 128 times the work of their common bad words."""
    text, backend = watched()
    ask = GenerationRequest(sampling={"bad_words": ["a", "b"], "allowed_token_ids": [1, 2, 3]})
    service = service_of(text)
    generations = asyncio.run(
        service.checked_choices([(1,) * length for length in (9, 5, 20)], ask, 1)
    )
    assert backend.num_encoded == 4
    params = [one.request.params for one in generations]
    assert {one.bad_words for one in params} == {params[0].bad_words}
    assert [one.max_tokens for one in params] == [503, 507, 492]
    named = GenerationRequest(sampling={"max_tokens": 500})
    with pytest.raises(InvalidRequestError, match="max_tokens=500, the prompt has 20 tokens"):
        asyncio.run(service.checked_choices([(1,) * 9, (1,) * 20], named, 1))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda service: service.encode_all(["a" * 30, [1] * 30, "a" * 41]),
            r"prompt has 101 characters or token IDs in all, the limit is 100 \(max_prompt_chars\)",
        ),
        (
            lambda service: service.encode_chat([{"role": "u", "content": "a" * 100}]),
            r"messages has 101 characters .* the limit is 100 \(max_prompt_chars\)",
        ),
        (
            lambda service: service.encode_chat([{"role": "u", "content": ""}] * 4),
            r"messages has 4 entries, the limit is 3 \(max_messages\)",
        ),
    ],
)
def test_a_refusal_names_the_setting(call: Callable[[Any], Any], message: str) -> None:
    service = service_of(fake_text_model(), max_prompt_chars=100, max_messages=3)
    with pytest.raises(InvalidRequestError, match=message) as refusal:
        asyncio.run(call(service))
    assert refusal.value.param in ("prompt", "messages")


@pytest.mark.parametrize(
    ("name", "value", "limit"),
    [
        ("logit_bias", {str(i): 1.0 for i in range(1_025)}, 1_024),
        ("bad_words", ["a"] * 1_025, 1_024),
        ("stop", ["a"] * 17, 16),
        ("stop_token_ids", [1] * 129, 128),
        ("allowed_token_ids", [1] * (MAX_ALLOWED_IDS + 1), MAX_ALLOWED_IDS),
        ("messages", [{}] * 5, "4 .max_messages."),
        ("tools", [{}] * 1_025, 1_024),
    ],
)
def test_a_long_list_is_refused_before_its_entries_are_read(
    name: str, value: Any, limit: object
) -> None:
    raw = f'{{"{name}": {value!r}}}'.replace("'", '"').encode()
    check = RequestLimits(max_messages=4).check_entries
    kind = ChatBody if name in ("messages", "tools") else CompletionBody
    with pytest.raises(InvalidRequestError, match=f"{name} has .* the limit is {limit}") as refusal:
        parse_body(kind, raw, UnknownFields(), check)
    assert refusal.value.param == name


def test_long_stop_strings_are_refused() -> None:
    """Each is searched for after every token."""
    prepare = partial(service_of(fake_text_model()).prepare, (1,))
    prepare(GenerationRequest(stop=["a" * (MAX_STOP_CHARS - 1), "b"]))
    with pytest.raises(InvalidRequestError, match="4097 characters together, the limit is 4096"):
        prepare(GenerationRequest(stop=["a" * MAX_STOP_CHARS, "b"]))


def test_choices_do_not_multiply_long_lists() -> None:
    service = service_of(fake_text_model())
    text: Any = service.text
    object.__setattr__(text.backend, "get_vocab_size", lambda: 100_000)
    ask = GenerationRequest(sampling={"allowed_token_ids": list(range(100_000))})
    assert len(asyncio.run(service.checked_choices([(1,)], ask, 5))) == 5
    with pytest.raises(InvalidRequestError, match="100000 entries for each of 6 choices"):
        asyncio.run(service.checked_choices([(1,), (2,)], ask, 3))
