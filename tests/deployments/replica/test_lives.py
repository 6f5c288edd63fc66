"""What was read before a replica's life ended is void for ever."""

from __future__ import annotations

from deployments.replica.work_loop import StreamGeneration


def test_what_was_read_before_the_end_is_void_and_what_follows_is_not() -> None:
    lives = StreamGeneration()
    first = lives.now
    assert not lives.is_void(first)
    lives.end()
    second = lives.now
    assert lives.is_void(first)
    assert not lives.is_void(second)
    lives.end()
    assert lives.is_void(first)
    assert lives.is_void(second)
