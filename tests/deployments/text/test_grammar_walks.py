"""One grammar, many outputs: each is answered as a grammar that was compiled for it alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from random import Random
from time import perf_counter
from typing import TypeVar

import numpy as np
import pytest
from tokenizers import Tokenizer

from deployments.text import grammars
from deployments.text.answers.asking import CallsAsked, asked_grammar
from deployments.text.answers.call_formats import CALL_FORMATS
from deployments.text.answers.formats import AnswerFormat
from deployments.text.answers.mark_text import MarkTokens
from deployments.text.answers.reading import Begun
from deployments.text.answers.reasoning_formats import REASONING_FORMATS
from deployments.text.grammar_library import MatcherFactory, tokenizer_of
from deployments.text.grammar_limits import DEFAULT_LIMITS, GrammarLimits
from deployments.text.grammar_source import library_text
from deployments.text.grammar_workers import GrammarThreads
from deployments.text.grammars import Compiler
from deployments.text.structured_output import choice, json_schema
from deployments.text.tokenizer import TextModel, load_text_model
from specdec_core.errors import InvalidRequestError
from specdec_core.grammar import Grammar, GrammarKind, GrammarSpec
from tests.service.tiny_folder import save_tiny_llama

Work = TypeVar("Work")

llguidance = pytest.importorskip("llguidance")

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "mail": {"type": "string", "format": "email"},
        "tags": {"type": "array", "items": {"enum": ["a", "bc", "déf"]}, "maxItems": 4},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
TOOLS = [
    {"function": {"name": name, "parameters": {"type": "object", "properties": properties}}}
    for name, properties in (
        ("find", {"text": {"type": "string"}}),
        ("add", {"by": {"type": "number"}}),
    )
]


def regex(source: str) -> GrammarSpec:
    return GrammarSpec(GrammarKind.REGEX, source)


def lark(source: str) -> GrammarSpec:
    return GrammarSpec(GrammarKind.LARK, source)


def demanded(calls: str, begun: Begun, name: str | None = None) -> GrammarSpec:
    """Return the grammar of reasoning and calls, with marks that are no tokens."""
    answer_format = AnswerFormat(reasoning=REASONING_FORMATS["qwen3"], calls=CALL_FORMATS[calls])
    asked = CallsAsked(TOOLS, is_required=True, name=name)
    spec = asked_grammar(answer_format, begun, asked, None, MarkTokens())
    assert spec is not None
    return spec


GRAMMARS = {
    # Each output visits states of its own: shared, they were too many after 48 and 126 answers.
    "paragraphs": regex(r"((.|\n){0,300}\n\n){1,20}"),
    "far apart": regex(r"(.*a.{14}b.*)|(.*c.{13}d.*)"),
    "words": regex(r"([a-z]{1,12}[ ,.-]){2,60}"),
    "person": json_schema(PERSON),
    "any object": json_schema({"type": "object"}),
    "list": json_schema({"type": "array", "items": PERSON, "minItems": 1}),
    "choice": choice(["yes", 'no, "never"', "日本語 🙂", "yes, but"]),
    "nesting": lark('start: "(" start* ")" | "[" start "]" | /[0-9]+/'),
    "sum": lark('start: term ("+" term)*\nterm: /[0-9]{1,9}/ | "-" term | "{" start "}"'),
    "tool call": demanded("hermes", Begun.NOTHING),
}
MORE_GRAMMARS = {
    "one call": demanded("qwen3_coder", Begun.REASONING, "add"),
    "number": json_schema({"type": "number"}),
    "date": json_schema({"type": "string", "format": "date-time"}),
    "pattern": json_schema({"type": "string", "pattern": "^(a|b.{3}c)*d$"}),
    "free keys": json_schema({"type": "object", "additionalProperties": {"type": "integer"}}),
    "one of two": json_schema({"anyOf": [PERSON, {"type": "array", "items": {"type": "null"}}]}),
    "labels": choice([f"label {i}" for i in range(500)]),
    "counted": regex(r"(ab?){10,200}c"),
    "everything": regex(r"(.|\n)*"),
    "lines": lark('start: line+\nline: /[^\\n]{0,40}/ "\\n"'),
}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> TextModel:
    """With as many long tokens as make a regular expression's states many."""
    tiny = load_text_model(str(save_tiny_llama(tmp_path_factory.mktemp("tiny"))))
    backend, random = Tokenizer.from_str(tiny.backend.to_str()), Random(0)
    words = {"".join(random.choices("abcd xyz", k=random.randint(2, 9))) for _ in range(1000)}
    backend.add_tokens(sorted(words))
    return replace(tiny, backend=backend)


@pytest.fixture(scope="module")
def factory(text: TextModel) -> MatcherFactory:
    return MatcherFactory(lambda: tokenizer_of(text), DEFAULT_LIMITS)


class Oracle:
    """The library itself, compiled for one output, which it is asked about step by step."""

    def __init__(self, factory: MatcherFactory, spec: GrammarSpec) -> None:
        self._matcher = llguidance.LLMatcher(
            factory.read_tokenizer(), library_text(llguidance.LLMatcher, spec), log_level=0
        )

    def allowed(self) -> bytes:
        weights: bytes = self._matcher.compute_logit_bias()
        assert not self._matcher.is_error(), self._matcher.get_error()
        return weights

    def take(self, token_id: int) -> None:
        assert self._matcher.consume_token(token_id)


def walk(grammar: Grammar, oracle: Oracle, text: TextModel, random: Random, length: int) -> int:
    """Follow a random output; returns how many tokens it has."""
    output: list[int] = []
    while len(output) < length:
        assert grammar.prepare(output, 60.0)
        allowed = grammar.allowed(output)
        assert allowed == oracle.allowed(), (output, grammar.failure)
        assert allowed is not None
        if random.random() < 0.2:  # a proposal that is rejected
            drafted = [random.randrange(text.vocab_size) for _ in range(3)]
            for count in range(1, 4):
                grammar.allowed(output + drafted[:count])
        token_id = draw(allowed, random)
        if token_id in text.end_token_ids:
            break
        oracle.take(token_id)
        output.append(token_id)
    return len(output)


def draw(allowed: bytes, random: Random) -> int:
    """One of the allowed token IDs."""
    return int(random.choice(np.frombuffer(allowed, np.uint8).nonzero()[0]))


def resident_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


def check_outputs(
    compiler: Compiler, factory: MatcherFactory, text: TextModel, spec: GrammarSpec, seeds: range
) -> int:
    """Compare a random output of the grammar for each seed; returns their tokens."""
    walks = [
        walk(compiler(spec), Oracle(factory, spec), text, Random(seed), 5 + seed % 20)
        for seed in seeds
    ]
    return sum(walks)


@pytest.mark.parametrize("name", GRAMMARS)
def test_the_hundredth_answer_is_that_of_a_fresh_grammar(
    name: str, text: TextModel, factory: MatcherFactory
) -> None:
    compiler = Compiler(lambda: text)
    assert check_outputs(compiler, factory, text, GRAMMARS[name], range(100)) > 100


CALL = (
    "plan</think>\n\n<tool_call>\n<function=find>\n<parameter=text>\na </b>\n</parameter>\n"
    "</function>\n</tool_call>"
)


def test_an_answer_continues_in_the_middle_of_its_reasoning_and_of_its_call(
    text: TextModel,
) -> None:
    """As after a recovery, or after drafts that were rejected: the output alone decides."""
    compiler = Compiler(lambda: text)
    spec = demanded("qwen3_coder", Begun.REASONING)
    used = compiler(spec)
    output = list(text.encode_part(CALL))
    other = list(text.encode_part("x"))
    for length in range(len(output) + 1):
        allowed = used.allowed(output[:length])
        assert allowed is not None
        assert length == len(output) or allowed[output[length]]
        used.allowed([*output[:length], *other * 3])
        assert compiler(spec).allowed(output[:length]) == allowed
        assert used.allowed(output[:length]) == allowed
    ends = {bool(allowed[i]) for i in text.end_token_ids}
    assert ends == {True}


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_the_thousandth_answer_of_twenty_grammars_is_that_of_a_fresh_one(
    text: TextModel, factory: MatcherFactory
) -> None:
    compiler = Compiler(lambda: text, workers=GrammarThreads())
    specs = [*GRAMMARS.values(), *MORE_GRAMMARS.values()]
    assert len(specs) == 20
    sizes = []
    for start in range(0, 1000, 250):
        for spec in specs:
            check_outputs(compiler, factory, text, spec, range(start, start + 250))
        sizes.append(resident_mib())
    assert sizes[-1] < 1.1 * sizes[1], sizes


@pytest.mark.parametrize(
    ("name", "max_states", "is_refused"), [("paragraphs", 4000, False), ("far apart", 700, True)]
)
def test_a_refusal_depends_on_the_output_alone(
    name: str, max_states: int, is_refused: bool, text: TextModel
) -> None:
    """Not on the answers before it: outputs together need more states than are allowed, and of the
    second grammar some outputs alone."""
    limits = GrammarLimits(max_states=max_states)
    shared = Compiler(lambda: text, limits)
    num_refused = 0
    for seed in range(10):
        grammar, random, output = shared(GRAMMARS[name]), Random(seed), list[int]()
        while len(output) < 40:
            allowed = grammar.allowed(output)
            if grammar.failure is not None:
                break
            assert allowed is not None
            output.append(draw(allowed, random))
            if output[-1] in text.end_token_ids:
                break
        fresh = Compiler(lambda: text, limits)(GRAMMARS[name])
        assert (fresh.allowed(output), fresh.failure) == (grammar.allowed(output), grammar.failure)
        num_refused += grammar.failure is not None
    assert (num_refused > 0) is is_refused


class Later:
    """Workers that do nothing until they are told to."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], bool]] = []

    def submit(self, work: Callable[[], Work], *, is_slow: bool) -> Future[Work]:
        future: Future[Work] = Future()

        def do() -> bool:
            if not future.set_running_or_notify_cancel():
                return False
            try:
                future.set_result(work())
            except Exception as error:
                future.set_exception(error)
            return True

        self._waiting.append(do)
        return future

    def run(self) -> int:
        """Do all that waits and is not cancelled; returns how much that was."""
        waiting, self._waiting = self._waiting, []
        return sum([do() for do in waiting])


def test_nothing_is_compiled_where_it_is_asked_for(text: TextModel) -> None:
    later = Later()
    compiler = Compiler(lambda: text, workers=later)
    spec = GRAMMARS["words"]
    first, second = compiler(spec), compiler(spec)
    for grammar in (first, second):
        assert not grammar.prepare(())
        assert not any(grammar.allowed(()) or b"")
        assert grammar.failure is None
    assert later.run() == 1, "requests that share a grammar share its compilation"
    for grammar in (first, second):
        assert not grammar.prepare(())
        assert later.run() == 1
        assert grammar.allowed(()) == Compiler(lambda: text)(spec).allowed(())


def test_no_mask_is_computed_where_it_is_asked_for(text: TextModel) -> None:
    """Neither for the next token, nor for a thousand of them, as after a recovery."""
    later = Later()
    spec = regex("(ab)*")
    output = [i for letter in "ab" * 500 for i in text.encode_part(letter)]
    grammar = Compiler(lambda: text, workers=later)(spec)
    later.run()
    for asked in ([], output[:1], output, output[:-1]):
        assert not grammar.prepare(asked)
        assert later.run() == 1
        assert grammar.prepare(asked)
        assert grammar.allowed(asked) == Compiler(lambda: text)(spec).allowed(asked)
        assert later.run() == 0


def test_drafted_outputs_are_waited_for_once_while_a_grammar_is_not_ready(text: TextModel) -> None:
    """Each of them would keep the whole pass waiting."""
    later = Later()
    grammar = Compiler(lambda: text, workers=later)(regex("a*"))
    later.run()
    assert not grammar.prepare(())
    later.run()
    (token_id,) = text.encode_part("a")
    began_s = perf_counter()
    for length in range(1, 51):
        assert grammar.allowed([token_id] * length) == b"\0"
    assert perf_counter() - began_s < 0.1
    assert later.run() == 1


def test_nothing_is_computed_for_a_sequence_that_has_gone(text: TextModel) -> None:
    later = Later()
    compiler = Compiler(lambda: text, workers=later)
    gone, other = compiler(regex("a*")), compiler(regex("a*"))
    del gone
    assert later.run() == 1, "the other one waits for the compiled grammar"
    gone = compiler(regex("a*"))
    assert not gone.prepare(())
    assert not other.prepare(())
    del gone
    assert later.run() == 1
    assert other.prepare(())


def test_an_output_is_waited_for_again_once_a_late_answer_is_there(
    text: TextModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A draft asks for nothing but drafted outputs."""
    later, compiler = Later(), Compiler(lambda: text, workers=GrammarThreads())
    grammar = compiler(regex("a*"))
    (token_id,) = text.encode_part("a")
    assert grammar.prepare([token_id], 10.0)
    threads, compiler.workers = compiler.workers, later
    assert grammar.allowed([token_id] * 2) == b"\0"
    later.run()
    compiler.workers = threads
    monkeypatch.setattr(grammars, "_DRAFTED_WAIT_S", 10.0)  # a busy machine takes longer than usual
    assert any(grammar.allowed([token_id] * length) != b"\0" for length in (3, 4))
    answers = [grammar.allowed([token_id] * length) for length in range(5, 53)]
    assert b"\0" not in answers


def test_a_grammar_that_cannot_be_read_is_refused_once_it_was_tried(text: TextModel) -> None:
    later = Later()
    compiler = Compiler(lambda: text, workers=later)
    grammar = compiler(regex("(["))
    assert grammar.failure is None
    later.run()
    assert grammar.prepare(())
    assert not any(grammar.allowed(()) or b"")
    assert grammar.failure
    with pytest.raises(InvalidRequestError, match=re.escape(grammar.failure)):
        compiler(regex("(["))
