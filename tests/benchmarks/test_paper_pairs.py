"""Pairs of the paper's tables: what a pair is called, recorded drafts, shapes, ready files."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks.paper.answer_book import UNKNOWN, AnswerBook, one_hot_like
from benchmarks.paper.pair_spec import DraftKind, parse_pair
from benchmarks.paper.recorded_padded import read_numbers, write_number
from benchmarks.paper.shapes import PAIR_SHAPES, pair_shape
from benchmarks.paper.token_model import random_sequences, token_model
from deployments.config.service import load_service_config
from deployments.text.chat_messages import TemplateInput
from deployments.text.chat_rendering import compile_template
from specdec_core.algorithms.padded.cache import PaddedKV
from specdec_core.config import SpecMethod
from specdec_core.errors import InvalidRequestError
from specdec_core.kv_cache.paged import KVShape
from specdec_core.model import score

PAIR_FILES = sorted(Path("examples/pairs").glob("*.yaml"))
PROMPTS = [(1, 2, 3), (1, 2, 4, 5), (9,)]
ANSWERS = [(10, 11, 12), (20, 21), (30,)]


def book(probability: float = 1.0) -> AnswerBook:
    return AnswerBook(PROMPTS, ANSWERS, probability=probability, vocab_size=100)


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("smollm2-135m,ngram", DraftKind.NGRAM, "smollm2-135m,ngram"),
        ("smollm2-135m,self", DraftKind.SELF, "smollm2-135m,self-0"),
        ("smollm2-135m,self-3", DraftKind.SELF, "smollm2-135m,self-3"),
        ("random-glm4,recorded-0.70", DraftKind.RECORDED, "random-glm4,recorded-0.7"),
        ("Qwen/Qwen3-8B,Qwen/Qwen3-0.6B", DraftKind.MODEL, "Qwen/Qwen3-8B,Qwen/Qwen3-0.6B"),
        ("a,self-made/model", DraftKind.MODEL, "a,self-made/model"),
    ],
)
def test_a_pair_is_read_from_its_name(text: str, kind: DraftKind, name: str) -> None:
    spec = parse_pair(text)
    assert (spec.kind, spec.name) == (kind, name)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("smollm2-135m", "TARGET,DRAFT"),
        (",ngram", "TARGET,DRAFT"),
        ("smollm2-135m,recorded-1.5", "1.5"),
        ("smollm2-135m,recorded-often", "often"),
        ("random-vicuna,ngram", "needs the draft recorded-P"),
    ],
)
def test_a_wrong_pair_is_refused_with_what_is_wrong(text: str, complaint: str) -> None:
    with pytest.raises(InvalidRequestError, match=complaint):
        parse_pair(text)


def test_an_unknown_shape_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidRequestError, match="vicuna, qwen3, glm4"):
        pair_shape("random-gpt")


@pytest.mark.parametrize("scale", [1, 8, 64])
@pytest.mark.parametrize("name", PAIR_SHAPES)
def test_a_scaled_shape_keeps_its_grouping_and_whole_vectors(name: str, scale: int) -> None:
    for shape in (PAIR_SHAPES[name].target, PAIR_SHAPES[name].draft):
        scaled = shape.scaled(scale)
        groups = shape.num_heads // shape.num_kv_heads
        assert scaled.num_heads == groups * scaled.num_kv_heads
        assert scaled.head_dim == shape.head_dim
        assert scaled.hidden % 64 == scaled.ffn % 64 == 0
        assert min(scaled.num_layers, scaled.num_kv_heads) >= 1
        assert scale > 1 or scaled == shape


def test_a_sequence_is_known_by_its_prompt_whole_or_begun() -> None:
    assert book().number_of((1, 2, 3)) == 0
    assert book().number_of((1, 2, 4)) == 1
    assert book().number_of((9, 30, 7)) == 2
    assert book().number_of((8,)) == UNKNOWN


def test_proposals_follow_the_recorded_answer_and_end_with_it() -> None:
    assert book().next_tokens(0, 5, 3) == [10, 11, 12]
    assert book().next_tokens(0, 6, 1) == [0]
    assert book().next_tokens(1, 3, 1) == [0], "nothing is proposed inside the prompt"
    assert book().next_tokens(UNKNOWN, 4, 2) == [0, 0]


def test_proposals_are_right_as_often_as_asked_and_the_same_each_time() -> None:
    answers = random_sequences([4000], seed=1)
    some = AnswerBook([(1,)], answers, probability=0.7, vocab_size=512, seed=3)
    proposed = some.next_tokens(0, 4000, 4000)
    right = sum(a == b for a, b in zip(proposed, answers[0], strict=True))
    assert abs(right / 4000 - 0.7) < 0.03, "4 standard deviations are 0.029"
    again = AnswerBook([(1,)], answers, probability=0.7, vocab_size=512, seed=3)
    assert again.next_tokens(0, 4000, 4000) == proposed


def test_logits_choose_the_proposals() -> None:
    logits = one_hot_like(torch.randn(3, 7), [6, 0, 2])
    assert logits.argmax(dim=1).tolist() == [6, 0, 2]
    assert one_hot_like(torch.empty(0, 7), []).shape == (0, 7)


def test_a_recorded_draft_answers_behind_every_slot_after_rollback_and_reuse() -> None:
    model = token_model(book())
    first, second = model.allocate(), model.allocate()
    logits = score(model, [(first, (1, 2, 3), 1), (second, (9,), 1)])
    assert logits.argmax(dim=1).tolist() == [10, 30]
    score(model, [(first, (10, 11), 2)])
    model.rollback(first, 4)
    assert score(model, [(first, (11,), 1)]).argmax(dim=1).tolist() == [12]
    model.free(first)
    reused = model.allocate()
    assert score(model, [(reused, (1, 2, 4, 5), 1)]).argmax(dim=1).tolist() == [20]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_number_of_a_row_travels_through_a_realignment(dtype: torch.dtype) -> None:
    shape = KVShape(
        num_layers=1, num_kv_heads=1, head_dim=4, dtype=dtype, device=torch.device("cpu")
    )
    kv = PaddedKV(shape, [5, 3, 8])
    kv.extend({0: 5, 1: 3, 2: 8})
    numbers = [0, 16_000, UNKNOWN]
    for row, number in enumerate(numbers):
        write_number(kv, row, number)
    assert read_numbers(kv) == numbers
    kv.realign([2, 0], [7, 2])
    assert read_numbers(kv) == [UNKNOWN, 0]


def test_the_papers_pairs_have_a_file_each() -> None:
    assert [file.stem for file in PAIR_FILES] == ["glm-4-9b", "qwen3-8b", "vicuna-7b"]


@pytest.mark.parametrize("file", PAIR_FILES, ids=lambda file: file.stem)
def test_every_pair_file_is_a_service_configuration_of_the_papers_sizes(file: Path) -> None:
    config = load_service_config(file, {})
    pool = config.scheduler_config()
    assert config.method is SpecMethod.DRAFT_MODEL
    assert (pool.max_group_size, pool.window) == (16, 48)
    assert pool.speculation.num_draft_tokens == 5
    assert config.loading.chat_template is None or config.loading.chat_template.is_file()


def test_the_vicuna_template_is_the_format_it_was_trained_on() -> None:
    template = compile_template(Path("examples/pairs/vicuna.jinja").read_text())
    turns = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "Who?"},
    ]
    text = template.render(TemplateInput(messages=turns))
    assert text == "Be brief. USER: Hi ASSISTANT: Hello</s> USER: Who? ASSISTANT:"
