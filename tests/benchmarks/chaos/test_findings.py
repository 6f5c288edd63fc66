"""What the harness calls identical, and which failed attempts it lets pass."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.chaos.answers import Answer, Attempt, Failure
from benchmarks.chaos.asked import Asked, Way
from benchmarks.chaos.faults import Blow, Fault, Strike
from benchmarks.chaos.findings import compare
from benchmarks.chaos.recovery import Recovery
from benchmarks.harness.processes import Kind

RETRY = Failure(kind="HTTP 503", message="send it again", says_retry=True)
LOST = Failure(kind="lost", message="closed", says_retry=False)
INTERNAL = Failure(kind="HTTP 500", message="", says_retry=False)


def attempt(ids: list[int], at_s: float = 10.0, failure: Failure | None = None) -> Attempt:
    asked = Asked(number=0, way=Way.CHAT_STREAM, messages=[], sampling={})
    text = "".join(chr(97 + i) for i in ids)
    reason = "" if failure else "stop"
    return Attempt(
        asked, ended_s=at_s, token_ids=ids, text=text, finish_reason=reason, failure=failure
    )


def answer(*attempts: Attempt) -> Answer:
    return Answer(attempts[0].asked, list(attempts))


def recovery(kind: Kind, blow: Blow = Blow.KILL, at_s: float = 9.0) -> Recovery:
    strike = Strike(fault=Fault(kind, blow), pid=1, at_s=at_s, until_s=at_s)
    return Recovery(
        strike=strike,
        process_s=1.0,
        ready_s=2.0,
        next_token_s=None,
        slowest_stream_s=None,
        after_ready_s=None,
        own_after_ready_s=None,
        shadow=(),
    )


RIGHT = [answer(attempt([1, 2, 3]))]


def test_the_same_bytes_are_identical() -> None:
    found = compare(RIGHT, [answer(attempt([1, 2, 3]))], [])
    assert (found.num_identical, found.differing, found.failed) == (1, (), ())


@pytest.mark.parametrize("ids", [[1, 2], [1, 2, 4], [1, 2, 3, 4], []])
def test_a_shorter_longer_or_other_answer_differs(ids: list[int]) -> None:
    assert compare(RIGHT, [answer(attempt(ids))], []).differing == (0,)


@pytest.mark.parametrize("changes", [{"text": "xyz"}, {"finish_reason": "length"}])
def test_another_text_or_end_differs(changes: dict[str, str]) -> None:
    other = replace(attempt([1, 2, 3]), **changes)  # type: ignore[arg-type]
    assert compare(RIGHT, [answer(other)], []).differing == (0,)


def test_a_request_without_an_answer_differs() -> None:
    assert compare(RIGHT, [answer(attempt([1], failure=RETRY))], []).num_identical == 0


@pytest.mark.parametrize(
    ("kind", "failure", "is_allowed"),
    [
        (Kind.INGRESS, RETRY, True),
        (Kind.INGRESS, LOST, False),
        (Kind.INGRESS, INTERNAL, False),
        (Kind.PROXY, LOST, True),
        (Kind.PROXY, INTERNAL, False),
        (Kind.TARGET, RETRY, False),
        (Kind.COORDINATOR, RETRY, False),
    ],
)
def test_only_connections_of_a_killed_ingress_or_proxy_may_fail_and_clearly(
    kind: Kind, failure: Failure, is_allowed: bool
) -> None:
    tried = answer(attempt([1], failure=failure), attempt([1, 2, 3], 20.0))
    found = compare(RIGHT, [tried], [recovery(kind)])
    assert found.num_identical == 1
    assert [one.is_allowed for one in found.failed] == [is_allowed]


@pytest.mark.parametrize(
    "other",
    [
        recovery(Kind.PROXY, Blow.STOP),
        recovery(Kind.PROXY, at_s=11.0),
        recovery(Kind.PROXY, at_s=1),
    ],
)
def test_a_failure_outside_of_the_kill_is_not_explained_by_it(other: Recovery) -> None:
    tried = answer(attempt([1], failure=RETRY), attempt([1, 2, 3], 20.0))
    (failed,) = compare(RIGHT, [tried], [other]).failed
    assert (failed.fault, failed.is_allowed) == (None, False)


def test_a_failed_attempt_that_began_wrongly_is_found() -> None:
    tried = answer(attempt([9], failure=RETRY), attempt([1, 2, 3], 20.0))
    assert compare(RIGHT, [tried], [recovery(Kind.PROXY)]).changed == (0,)
