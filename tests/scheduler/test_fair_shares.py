"""Clients are served in turn, by tokens; the oracle counts them itself and looks at everybody."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field, replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_core.request import Request
from specdec_core.scheduler.fair_queue import WaitingQueue
from specdec_core.scheduler.sequence import Sequence
from tests.scheduler.cell import Cell, config, request
from tests.scheduler.fake_replica import info

CLIENTS = ("", "one", "another", "third")


def asked(number: int, client: str, prompt_len: int = 3, max_tokens: int = 8) -> Request:
    one = request(f"{client}-{number}", (1,) * prompt_len, max_tokens)
    return replace(one, client=client)


@dataclass
class Line:
    """A waiting queue and the sequences that run, with books of its own about who had what."""

    queue: WaitingQueue = field(default_factory=WaitingQueue)
    served: Counter[str] = field(default_factory=Counter)
    running: list[Sequence] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    num_added: int = 0

    def add(self, client: str, prompt_len: int = 1, priority: int = 0) -> Sequence:
        one = replace(asked(self.num_added, client, prompt_len, 10_000), priority=priority)
        sequence = Sequence(self.num_added, one, float(self.num_added))
        self.num_added += 1
        self.queue.push(sequence)
        return sequence

    def admit(self) -> Sequence:
        sequence = self.queue.first
        client = sequence.request.client
        is_new = sequence.admitted_at is None
        self.queue.admit(sequence)
        sequence.admitted_at = 0.0
        self.served[client] += len(sequence.ids) if is_new else 0
        self.running.append(sequence)
        self.order.append(client)
        return sequence

    def emit(self, sequence: Sequence, num_tokens: int) -> None:
        sequence.append((1,) * num_tokens)
        sequence.account.num_served += num_tokens
        self.served[sequence.request.client] += num_tokens

    def end(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self.queue.discard(sequence)
        self.queue.end(sequence)

    def preempt(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self.queue.push(sequence)

    def serve_alone(self, num_requests: int, num_tokens: int) -> list[str]:
        """One after the other: whose they were."""
        for _ in range(num_requests):
            sequence = self.admit()
            self.emit(sequence, num_tokens)
            self.end(sequence)
        return self.order[-num_requests:]


def test_two_floods_are_served_in_turn_whoever_came_first() -> None:
    line = Line()
    for _ in range(20):
        line.add("one")
    for _ in range(5):
        line.add("another")
    assert Counter(line.serve_alone(10, num_tokens=9)) == {"one": 5, "another": 5}


def test_long_answers_count_for_as_many_short_ones() -> None:
    line = Line()
    for _ in range(200):
        line.add("long")
        line.add("short")
    for _ in range(110):
        sequence = line.admit()
        line.emit(sequence, 99 if sequence.request.client == "long" else 9)
        line.end(sequence)
    assert Counter(line.order) == {"long": 10, "short": 100}


def test_long_prompts_count_too() -> None:
    line = Line()
    for _ in range(200):
        line.add("long", prompt_len=99)
        line.add("short", prompt_len=9)
    assert Counter(line.serve_alone(110, num_tokens=1)) == {"long": 10, "short": 100}


@pytest.mark.parametrize("num_before", [0, 1, 50])
def test_a_single_request_beside_a_flood_is_the_next(num_before: int) -> None:
    line = Line()
    for _ in range(100):
        line.add("flood")
    line.serve_alone(num_before + 1, num_tokens=30)
    line.add("light")
    assert line.serve_alone(1, num_tokens=1) == ["light"]


@settings(max_examples=25)
@given(
    num_others=st.integers(1, 6),
    num_before=st.integers(0, 12),
    lens=st.lists(st.integers(1, 60), min_size=1, max_size=8),
)
def test_whoever_begins_to_wait_is_passed_by_every_other_client_once_at_most(
    num_others: int, num_before: int, lens: list[int]
) -> None:
    """While one request runs at a time."""
    line, lengths = Line(), itertools.cycle(lens)
    for _ in range(20):
        for place in range(num_others):
            line.add(f"flood {place}", prompt_len=next(lengths))
    line.serve_alone(num_before, num_tokens=next(lengths))
    line.add("light")
    passed = line.serve_alone(num_others + 1, num_tokens=1)
    assert "light" in passed
    before = Counter(passed[: passed.index("light")])
    assert set(before.values()) <= {1}


def test_who_was_away_has_no_credit_for_it() -> None:
    line = Line()
    line.add("away")
    for _ in range(1000):
        line.add("busy")
    line.serve_alone(900, num_tokens=9)
    for _ in range(100):
        line.add("away")
    assert Counter(line.serve_alone(40, num_tokens=9)) == {"away": 20, "busy": 20}


def test_who_had_much_waits_for_it_when_it_comes_back_at_once() -> None:
    """One request at a time is no way to have more than the others."""
    line = Line()
    for _ in range(1000):
        line.add("short")
    for _ in range(5):
        line.add("long")
        while (sequence := line.admit()).request.client == "short":
            line.emit(sequence, 9)
            line.end(sequence)
        line.emit(sequence, 999)
        line.end(sequence)
    assert 380 <= line.order.count("short") <= 420


def test_once_nobody_is_left_all_begin_anew() -> None:
    line = Line()
    line.add("one")
    line.add("another")
    first, second = line.admit(), line.admit()
    line.emit(first, 9000)
    line.end(first)
    line.end(second)
    line.add("one")
    line.add("another")
    assert line.queue.first.request.client == "one"


def test_a_preempted_request_goes_on_before_others_begin() -> None:
    line = Line()
    for client in ("one", "one", "another", "another"):
        line.add(client)
    sequence = line.admit()
    line.emit(sequence, 500)
    line.preempt(sequence)
    assert line.queue.first is sequence
    served = line.served.copy()
    line.admit()
    assert line.served == served
    assert line.queue.first.request.client == "another"


def test_what_another_life_of_the_pool_began_goes_on_before_others_begin() -> None:
    line = Line()
    line.add("one")
    resumed = replace(asked(9, "another"), emitted_token_ids=(1,))
    sequence = Sequence(9, resumed, 9.0)
    line.queue.push(sequence)
    assert line.queue.first is sequence


def test_whom_it_overtook_does_not_push_it_out_again() -> None:
    """By rank the youngest gives way; the flood that waited longer is admitted behind it."""
    line = Line()
    for _ in range(3):
        line.add("flood")
    line.admit()
    light = line.add("light")
    assert line.admit() is light
    later = line.admit()
    assert light.rank < later.rank or light.rank[0] == later.rank[0]


def test_a_priority_puts_a_client_before_nobody_but_itself() -> None:
    line = Line()
    for _ in range(50):
        line.add("pushing", priority=-1000)
        line.add("patient")
    own = line.add("pushing", priority=-2000)
    assert line.queue.first is own
    assert Counter(line.serve_alone(20, num_tokens=9)) == {"pushing": 10, "patient": 10}


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(-3, 3), st.sampled_from("aaep")), max_size=60))
def test_one_client_alone_is_served_by_rank_as_if_there_were_none(
    steps: list[tuple[int, str]],
) -> None:
    line = Line()
    waiting: list[Sequence] = []
    for priority, step in steps:
        if step == "a":
            waiting.append(line.add("alone", prompt_len=1, priority=priority))
        elif step == "e" and waiting:
            expected = min(waiting, key=lambda s: s.arrived_at + 30 * s.request.priority)
            assert line.admit() is expected
            line.emit(expected, 7)
            waiting.remove(expected)
        elif line.running:
            line.preempt(line.running[0])
            waiting = [*waiting, *(s for s in line.queue.sequences if s not in waiting)]
    assert sorted(waiting, key=lambda s: s.rank) == line.queue.sequences


@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**32),
    num_clients=st.integers(2, 5),
    num_places=st.integers(1, 6),
    longest=st.integers(2, 80),
)
def test_clients_that_always_wait_are_served_alike(
    seed: int, num_clients: int, num_places: int, longest: int
) -> None:
    """At most what fits into all places apart: who is admitted has had the least, and then only
    what it has there can grow."""
    random, line = Random(seed), Line()
    clients = [str(number) for number in range(num_clients)]
    rest: dict[int, int] = {}
    for client in clients * 20:
        line.add(client, prompt_len=random.randint(1, longest))
    while all(line.queue._accounts[client].waiting for client in clients):
        served = [line.served[client] for client in clients]
        assert max(served) - min(served) <= num_places * 2 * longest
        if len(line.running) < num_places:
            sequence = line.admit()
            rest[sequence.sequence_id] = random.randint(0, longest)
            continue
        sequence = random.choice(line.running)
        num_tokens = min(random.randint(1, longest), rest[sequence.sequence_id])
        line.emit(sequence, num_tokens)
        rest[sequence.sequence_id] -= num_tokens
        if not rest[sequence.sequence_id]:
            line.end(sequence)


class Plain:
    """The same rule without heaps, marks and forgetting: everybody is looked at every time."""

    def __init__(self) -> None:
        self.had: dict[str, int] = {}
        self.level = 0
        self.waiting: list[Sequence] = []

    def _of(self, client: str) -> list[Sequence]:
        return [s for s in self.waiting if s.request.client == client]

    def add(self, sequence: Sequence) -> None:
        client = sequence.request.client
        if not self._of(client):
            self.had[client] = max(self.had.get(client, 0), self.level)
        self.waiting.append(sequence)

    @property
    def first(self) -> Sequence:
        heads = [min(self._of(client), key=lambda s: s.rank) for client in self.clients]
        return min(heads, key=lambda s: (s.admitted_at is None, self._key(s), s.rank))

    def _key(self, sequence: Sequence) -> int:
        return self.had[sequence.request.client] if sequence.admitted_at is None else 0

    @property
    def clients(self) -> set[str]:
        return {sequence.request.client for sequence in self.waiting}

    def admit(self, sequence: Sequence) -> None:
        if sequence.admitted_at is None:
            self.level = max(self.level, self.had[sequence.request.client])
            self.had[sequence.request.client] += len(sequence.ids)
        self.waiting.remove(sequence)

    def forget(self, client: str, running: list[Sequence]) -> None:
        """Its request has ended; what it had matters while others wait."""
        is_busy = self._of(client) or any(s.request.client == client for s in running)
        if not (is_busy or self.waiting):
            del self.had[client]
        if not (self.waiting or running):
            self.had.clear()


@pytest.mark.parametrize(
    "seed", [*range(7), *(pytest.param(s, marks=pytest.mark.nightly) for s in range(7, 30))]
)
def test_the_next_is_always_the_one_that_a_look_at_everybody_finds(seed: int) -> None:
    random, line, plain = Random(seed), Line(), Plain()
    # Few at a time in some lives: then clients come and go.
    steps = "a" * random.randint(2, 4) + "eettxxpq"
    for _ in range(500):
        step, pick, size = random.choice(steps), random.randrange(100), random.randrange(40)
        if step == "a":
            plain.add(line.add(CLIENTS[pick % len(CLIENTS)], size + 1, priority=size % 3))
        elif step == "e" and plain.waiting:
            expected = plain.first
            plain.admit(expected)
            assert line.admit() is expected
        elif step == "q" and plain.waiting:  # it gives up
            gone = plain.waiting.pop(pick % len(plain.waiting))
            line.queue.discard(gone)
            line.queue.end(gone)
            plain.forget(gone.request.client, line.running)
        elif line.running:
            sequence = line.running[pick % len(line.running)]
            plain.had[sequence.request.client] += size
            line.emit(sequence, size)
            if step == "x":
                line.end(sequence)
                plain.forget(sequence.request.client, line.running)
            elif step == "p":
                line.preempt(sequence)
                plain.add(sequence)
        if plain.waiting:
            assert line.queue.first is plain.first


def test_a_thousand_clients_leave_nothing_behind() -> None:
    line = Line()
    line.add("stays")
    line.admit()
    queue = line.queue
    for number in range(1000):
        line.add(str(number))
        line.end(line.admit())
        assert len(queue._accounts) <= 200
        assert len(queue._keys) <= 200
    line.end(line.running[0])
    assert not queue._accounts
    assert not queue._keys


def test_a_head_that_changes_a_thousand_times_leaves_no_turns() -> None:
    line = Line()
    line.add("least", prompt_len=1)
    line.admit()
    line.add("least")
    line.add("much")
    queue = line.queue
    for number in range(1000):
        sequence = line.add("much", priority=-number)
        line.queue.discard(sequence)
        assert len(queue._keys) <= 200


def test_a_pool_gives_a_flood_and_a_single_request_their_shares() -> None:
    cell = Cell(config(window=2, max_group_size=2))
    cell.join(info())
    for number in range(12):
        cell.add(asked(number, "flood"))
    for _ in range(3):
        cell.turn()
    light = cell.add(asked(0, "light"))
    while light.last is None:
        cell.turn()
    num_done = sum(client.last is not None for client in cell.clients.values())
    assert num_done <= 2 + 2 + 1, "those that ran already, those beside it, and itself"
    cell.run()
    for client in cell.clients.values():
        client.check_plain()


def test_answers_count_while_they_are_made() -> None:
    """A client of long answers does not take place after place before its first one ends."""
    cell = Cell(config(window=4, max_group_size=4))
    cell.join(info(num_blocks=200, max_model_len=200))
    for number in range(8):
        cell.add(asked(number, "long", max_tokens=150))
    for number in range(60):
        cell.add(asked(number, "short", max_tokens=4))
    for _ in range(60):
        cell.turn()
    told: Counter[str] = Counter()
    for client in cell.clients.values():
        told[client.request.client] += len(client.token_ids)
    assert told["short"] >= 40, "one of four rows at least"


def test_who_has_never_asked_has_nothing_waiting() -> None:
    assert not WaitingQueue().has_more_than_its_share("nobody", 0)
