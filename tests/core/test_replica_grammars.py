"""A replica whose rows have grammars: who waits for them, and for how long."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from specdec_core.grammar import GrammarKind, GrammarSpec
from specdec_core.messages import Role, RowStatus
from specdec_core.sampling_params import SamplingRules
from specdec_core.worker.replica import Replica
from tests.core.test_replica import GREEDY, greedy, row, run
from tests.fakes import TokenListModel

SPEC = GrammarSpec(GrammarKind.REGEX, "a+")
ASKED = SamplingRules(replace(GREEDY.params, grammar=SPEC), prompt_len=3)
PROMPT = (1, 2, 3)


@dataclass(eq=False)
class SlowGrammar:
    """Allows every ID once it is ready."""

    is_ready: bool = False
    ready_after_s: float | None = None
    """Time that a caller has to wait; None: it stays as it is."""
    failure: str | None = None
    prepared: list[tuple[int, ...]] = field(default_factory=list)

    def prepare(self, output: Sequence[int], timeout_s: float = 0.0) -> bool:
        self.prepared.append(tuple(output))
        if not self.is_ready and timeout_s:
            waits_s = timeout_s if self.ready_after_s is None else self.ready_after_s
            time.sleep(min(waits_s, timeout_s))
            self.is_ready = waits_s < timeout_s
        return self.is_ready

    def allowed(self, output: Sequence[int]) -> bytes | None:
        return None if self.prepare(output) and self.failure is None else b"\0"


def target(grammar: SlowGrammar) -> tuple[TokenListModel, Replica]:
    model = TokenListModel()
    return model, Replica(model, Role.TARGET, lambda spec: grammar)


def test_a_row_whose_grammar_is_not_ready_is_left_out_and_can_be_leased_again() -> None:
    grammar = SlowGrammar()
    model, replica = target(grammar)
    asked = row(PROMPT, 0, sequence_id=1, num_choices=1, rules=ASKED)
    other = row((4, 5), 0, sequence_id=2, num_choices=1, rules=GREEDY)
    left_out, fine = run(replica, asked, other)
    assert (left_out.status, left_out.tokens) == (RowStatus.NOT_READY, ())
    assert fine.tokens == greedy(model, (4, 5), 1)
    grammar.is_ready = True
    (again,) = run(replica, asked._replace(rules=None))
    assert again.tokens == greedy(model, PROMPT, 1)


def test_a_later_round_that_is_not_ready_keeps_what_is_cached() -> None:
    grammar = SlowGrammar(is_ready=True)
    model, replica = target(grammar)
    (first,) = run(replica, row(PROMPT, 0, num_choices=1, rules=ASKED))
    ids = (*PROMPT, *first.tokens)
    proposal = greedy(model, ids, 2)
    following = row(ids, first.cached_len, proposal=proposal, num_choices=3)
    grammar.is_ready = False
    (left_out,) = run(replica, following)
    assert left_out.status is RowStatus.NOT_READY
    assert grammar.prepared[-1] == ids[3:], "the output so far is what it has to answer for"
    grammar.is_ready = True
    (second,) = run(replica, following)
    assert (second.tokens, second.num_accepted) == (greedy(model, ids, 3), 2)


def test_a_prompt_is_read_while_its_grammar_is_compiled() -> None:
    grammar = SlowGrammar()
    _, replica = target(grammar)
    (chunk,) = run(replica, row(PROMPT, 0, rules=ASKED))
    assert (chunk.status, chunk.cached_len) == (RowStatus.OK, 3)
    assert not grammar.prepared


def test_a_grammar_that_is_soon_ready_is_waited_for() -> None:
    grammar = SlowGrammar(ready_after_s=0.001)
    model, replica = target(grammar)
    (answer,) = run(replica, row(PROMPT, 0, num_choices=1, rules=ASKED))
    assert answer.tokens == greedy(model, PROMPT, 1)


def test_all_rows_of_a_pass_together_wait_for_a_few_milliseconds() -> None:
    _, replica = target(SlowGrammar())
    rows = [row(PROMPT, 0, sequence_id=i, num_choices=1, rules=ASKED) for i in range(20)]
    plain = row((4, 5), 0, sequence_id=99, num_choices=1, rules=GREEDY)
    run(replica, *rows, plain)
    seconds = []
    for _ in range(3):  # other work on the machine makes single passes longer
        started = time.perf_counter()
        answers = run(replica, *[one._replace(rules=None) for one in rows], plain)
        seconds.append(time.perf_counter() - started)
    assert min(seconds) < 0.05
    assert [a.status for a in answers] == [RowStatus.NOT_READY] * 20 + [RowStatus.OK]


def test_a_grammar_that_has_failed_ends_its_row() -> None:
    _, replica = target(SlowGrammar(is_ready=True, failure="too complex"))
    (answer,) = run(replica, row(PROMPT, 0, num_choices=1, rules=ASKED))
    assert (answer.status, answer.error) == (RowStatus.INVALID, "too complex")


def test_a_draft_proposes_nothing_for_a_grammar_that_is_not_ready() -> None:
    replica = Replica(TokenListModel(), Role.DRAFT, lambda spec: SlowGrammar())
    (answer,) = run(replica, row(PROMPT, 0, num_choices=3, rules=ASKED), role=Role.DRAFT)
    assert (answer.status, answer.tokens) == (RowStatus.OK, ())
    assert answer.cached_len == 3


def test_a_replica_keeps_no_id_of_a_grammar_sequence_that_is_gone() -> None:
    _, replica = target(SlowGrammar(is_ready=True))
    for sequence_id in (1, 2):
        run(replica, row(PROMPT, 0, sequence_id=sequence_id, num_choices=1, rules=ASKED))
    assert replica._with_grammar == {1, 2}
    replica.free([1])
    assert replica._with_grammar == {2}
    replica.reset()
    assert not replica._with_grammar
