"""When what a fault took was there again, and when clients had their next token."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from benchmarks.chaos.answers import Attempt
from benchmarks.chaos.faults import Blow, Strike
from benchmarks.chaos.watch import Sight
from benchmarks.harness.processes import Kind

_MODELS = (Kind.TARGET, Kind.DRAFT)
_EVERY_S = 0.2
"""Between two moments of a run without faults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """Seconds after the strike; None: not seen."""

    strike: Strike
    process_s: float | None
    """Another process of the kind lives; one that was only stopped goes on."""
    ready_s: float | None
    """As many serve as before."""
    next_token_s: float | None
    """The first token of any stream that was under way."""
    slowest_stream_s: float | None
    """The last of those streams to have another one."""
    after_ready_s: float | None
    """From ready to the first token of any stream."""
    own_after_ready_s: float | None
    """The same without the seconds in which the service had not recovered from another fault."""
    shadow: tuple[str, ...]
    """Faults from which the service had not recovered when this one struck."""


def recoveries(
    strikes: Sequence[Strike], sights: Sequence[Sight], attempts: Sequence[Attempt]
) -> list[Recovery]:
    """`sights` begin before the first strike, with everything there."""
    whole = sights[0]
    found: list[Recovery] = []
    for strike in strikes:
        shadow = tuple(
            str(older.strike.fault)
            for older in found
            if older.ready_s is None or older.strike.at_s + older.ready_s > strike.at_s
        )
        found.append(_recovery(strike, sights, attempts, whole, shadow))
    return [replace(one, own_after_ready_s=_own_after_ready(one, found)) for one in found]


def _recovery(
    strike: Strike,
    sights: Sequence[Sight],
    attempts: Sequence[Attempt],
    whole: Sight,
    shadow: tuple[str, ...],
) -> Recovery:
    before = [sight for sight in sights if sight.at_s <= strike.at_s]
    later = [sight for sight in sights if sight.at_s > strike.until_s]
    process_s: float | None = strike.until_s - strike.at_s
    ready_s = process_s
    if strike.fault.blow is Blow.KILL:
        process_s = _since(strike, (s.at_s for s in later if _has_process(s, strike, before)))
        ready_s = _since(strike, (s.at_s for s in later if _is_ready(s, strike, before, whole)))
    gaps = _gaps(strike.at_s, attempts)
    return Recovery(
        strike=strike,
        process_s=process_s,
        ready_s=ready_s,
        next_token_s=min(gaps, default=None),
        slowest_stream_s=max(gaps, default=None),
        after_ready_s=None if ready_s is None else _next_token(strike.at_s + ready_s, attempts),
        own_after_ready_s=None,
        shadow=shadow,
    )


def _own_after_ready(recovery: Recovery, all_found: Sequence[Recovery]) -> float | None:
    if recovery.ready_s is None or recovery.after_ready_s is None:
        return None
    reached_s = recovery.strike.at_s + recovery.ready_s
    token_s = reached_s + recovery.after_ready_s
    own_s = 0.0
    for other in sorted(all_found, key=lambda one: one.strike.at_s):
        if other is not recovery:
            begin_s = other.strike.at_s
            own_s += max(0.0, min(begin_s, token_s) - reached_s)
            end_s = token_s if other.ready_s is None else begin_s + other.ready_s
            reached_s = min(max(reached_s, end_s), token_s)
    return own_s + token_s - reached_s


def _since(strike: Strike, times_s: Iterable[float]) -> float | None:
    first = next(iter(times_s), None)
    return None if first is None else first - strike.at_s


def _has_process(sight: Sight, strike: Strike, before: Sequence[Sight]) -> bool:
    kind = strike.fault.kind
    return bool(set(sight.pids[kind]) - {pid for s in before for pid in s.pids[kind]})


def _is_ready(sight: Sight, strike: Strike, before: Sequence[Sight], whole: Sight) -> bool:
    """A new one, as many as at the start, and whatever says so of its kind."""
    kind = strike.fault.kind
    if not _has_process(sight, strike, before) or len(sight.pids[kind]) < len(whole.pids[kind]):
        return False
    if kind in _MODELS:
        known = {name for s in before for name in s.replicas or ()}
        is_new = any(k is kind and n not in known for n, k in (sight.replicas or {}).items())
        return is_new and sight.num_registered(kind) >= whole.num_registered(kind)
    if kind is Kind.COORDINATOR:
        known = {epoch for s in before for epoch in s.epochs or ()}
        is_new = not known.issuperset(sight.epochs or ())
        return is_new and len(sight.epochs or ()) == len(whole.epochs or ())
    return kind is not Kind.PROXY or sight.epochs is not None


def _gaps(at_s: float, attempts: Iterable[Attempt]) -> list[float]:
    """For every stream that had a token before and one after: how long the latter took."""
    gaps = []
    for attempt in attempts:
        is_under_way = attempt.arrivals_s and attempt.arrivals_s[0] <= at_s
        if attempt.asked.way.is_streamed and is_under_way:
            gaps += [arrival - at_s for arrival in attempt.arrivals_s if arrival > at_s][:1]
    return gaps


def calm_waits(attempts: Sequence[Attempt]) -> list[float]:
    """Of a run without faults, at moments all over it: how long the slowest stream under way waits
    for its next token. No fault is to be blamed for as much."""
    arrivals = [at_s for attempt in attempts for at_s in attempt.arrivals_s]
    if not arrivals:
        return []
    first_s, last_s = min(arrivals), max(arrivals)
    moments = (first_s + n * _EVERY_S for n in range(1, int((last_s - first_s) / _EVERY_S) + 1))
    return [max(gaps) for at_s in moments if (gaps := _gaps(at_s, attempts))]


def _next_token(at_s: float, attempts: Iterable[Attempt]) -> float | None:
    """Of streams: whole answers do not tell when their tokens were chosen."""
    later = (
        arrival - at_s
        for attempt in attempts
        if attempt.asked.way.is_streamed
        for arrival in attempt.arrivals_s
        if arrival > at_s
    )
    return min(later, default=None)
