"""Routes the requests of one ingress to several cells, over one stream per cell.

Every request runs in one cell. If that cell has had no target for a while, the request continues in
another, from the token IDs that its client already has. Its client sees a pause, as after the
restart of a coordinator. If an API key has used up its share of a cell, its request is offered to
the other cells.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import operator
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from random import Random
from typing import Protocol

from deployments.errors import ClientLimitError, PoolUnavailableError, ReleasedError
from deployments.ingress.cells.client import OnAccepted, Pool
from deployments.ingress.cells.merging import merged_state, merged_status
from deployments.observability.json_logs import about
from deployments.observability.metrics.request_times import IngressTimes
from deployments.wire.cell_ids import less_loaded, new_id_of, order_of
from specdec.v1 import coordination_pb2 as pb
from specdec.v1 import generation_pb2 as public_pb
from specdec_core.errors import InvalidRequestError
from specdec_core.request import Request, TokenEvent

logger = logging.getLogger(__name__)

MOVE_AFTER_S = 5.0
"""Seconds without a target after which the requests of a cell move to another.

A coordinator that Ray restarts is back sooner, and a move costs every row its prefill.
"""
_LOOK_S = 0.5

_AWAY = "no cell is available; try again"


class CellClient(Pool, Protocol):
    """The part of SchedulerClient that the router uses."""

    @property
    def num_requests(self) -> int: ...

    def generate(
        self, request: Request, *, resume: bool = False, on_accepted: OnAccepted | None = None
    ) -> AsyncGenerator[TokenEvent]: ...

    def open_requests(self) -> list[Request]: ...

    def release(self, request_id: str) -> None: ...


class CellRouter:
    """A Pool over the clients of several cells, which share `times`. One per ingress replica."""

    def __init__(
        self,
        cells: Sequence[CellClient],
        times: IngressTimes,
        *,
        random: Random | None = None,
        clock: Callable[[], float] = time.monotonic,
        move_after_s: float = MOVE_AFTER_S,
    ) -> None:
        self._cells = tuple(cells)
        self._times = times
        self._random = random or Random()
        self._clock = clock
        self._move_after_s = move_after_s
        self._away_since: dict[int, float] = {}
        self._place: dict[str, int] = {}
        """Cell of every open request, by request ID."""
        self._promised: dict[str, int] = {}
        """Cell of every request that is about to begin there and is not among its requests yet."""
        self._told: list[pb.PoolState | None] = [None] * len(cells)
        self._state: pb.PoolState | None = None

    @property
    def state(self) -> pb.PoolState | None:
        """The merged state of all cells.

        Every chunk of output asks for it, so it is merged only after a cell has reported another
        state.
        """
        told = [cell.state for cell in self._cells]
        if not all(map(operator.is_, told, self._told)):
            self._told, self._state = told, merged_state(told)
        return self._state

    @property
    def times(self) -> IngressTimes:
        return self._times

    @property
    def has_targets(self) -> bool:
        return any(cell.has_targets for cell in self._cells)

    @property
    def is_serving(self) -> bool:
        return any(cell.is_serving for cell in self._cells)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for cell in self._cells:
                group.create_task(cell.run())
            while True:
                await asyncio.sleep(_LOOK_S)
                self.look()

    def new_request_id(self) -> str:
        """Return an ID whose home is the less loaded of two cells."""
        loads = self._loads()
        num_cells = len(self._cells)
        home = less_loaded(loads, self._random) if loads else self._random.randrange(num_cells)
        request_id = new_id_of(home, num_cells)
        self._promised[request_id] = home
        return request_id

    async def generate(
        self, request: Request, *, on_accepted: OnAccepted | None = None
    ) -> AsyncGenerator[TokenEvent]:
        request_id, is_moved = request.request_id, False
        refusals: dict[int, ClientLimitError] = {}
        if request_id in self._place:
            raise InvalidRequestError(f"request_id {request_id!r} is in use", param="request_id")
        self._place[request_id] = self._first_place(request_id)
        try:
            while True:
                self._promised.pop(request_id, None)
                cell = self._cells[self._place[request_id]]
                attempt = cell.generate(request, resume=is_moved, on_accepted=on_accepted)
                try:
                    async with contextlib.aclosing(attempt) as events:
                        async for event in events:
                            yield event
                    return
                except ReleasedError as released:
                    request, is_moved = released.request, released.was_sent
                except ClientLimitError as refusal:
                    refusals[self._place[request_id]] = refusal
                    self._place[request_id] = self._place_beside(request_id, refusals)
        finally:
            del self._place[request_id]

    def give_up(self, message: str) -> None:
        for cell in self._cells:
            cell.give_up(message)

    async def abort(self, request_id: str) -> bool:
        """Abort a request of any ingress. Return False if no such request is live.

        A request of another ingress is looked for in every cell. Only its home cell can confirm
        that the request is in none of them.
        """
        place = self._place.get(request_id)
        if place is not None:
            return await self._cells[place].abort(request_id)
        order = order_of(request_id, len(self._cells))
        answers = await asyncio.gather(*(self._abort_at(place, request_id) for place in order))
        if answers[0] is None and not any(answers):
            raise PoolUnavailableError(_AWAY)
        return any(answers)

    async def _abort_at(self, place: int, request_id: str) -> bool | None:
        with contextlib.suppress(PoolUnavailableError):
            return await self._cells[place].abort(request_id)
        return None

    async def pool_status(self) -> public_pb.PoolStatusResponse:
        """Return the merged status of the cells that answer."""
        answers = await asyncio.gather(*map(_status_of, self._cells))
        known = {place: answer for place, answer in enumerate(answers) if answer is not None}
        if not known:
            raise PoolUnavailableError(_AWAY)
        return merged_status(known)

    def look(self) -> None:
        """Note which cells are away. Requests that waited for a cell too long continue in
        another."""
        self._promised.clear()  # a request that has not begun by now was refused
        now = self._clock()
        for place, cell in enumerate(self._cells):
            if cell.has_targets:
                self._away_since.pop(place, None)
            elif now - self._away_since.setdefault(place, now) > self._move_after_s:
                self._move_from(cell)

    def _move_from(self, cell: CellClient) -> None:
        for request in cell.open_requests():
            loads = self._loads(request.pinned_fingerprint)
            if loads:
                request_id, to = request.request_id, less_loaded(loads, self._random)
                logger.warning(
                    "request %s continues in cell %d", request_id, to, extra=about(request_id)
                )
                self._place[request_id] = self._promised[request_id] = to
                cell.release(request_id)

    def _first_place(self, request_id: str) -> int:
        """Return the home cell of a request, or its substitute while the home has no target.

        Return the home if no cell has a target.
        """
        order = order_of(request_id, len(self._cells))
        return next((place for place in order if self._cells[place].has_targets), order[0])

    def _place_beside(self, request_id: str, refusals: Mapping[int, ClientLimitError]) -> int:
        """Return the cell to ask next, after those in `refusals` refused a client that has its
        share.

        If no other cell has a target, raises the refusal with the shortest wait.
        """
        for place in order_of(request_id, len(self._cells)):
            if place not in refusals and self._cells[place].has_targets:
                return place
        raise min(refusals.values(), key=operator.attrgetter("retry_after_s"))

    def _loads(self, pinned_fingerprint: str = "") -> dict[int, float]:
        """Return the load of each serving cell, as its requests plus one, per target.

        Include only cells that may continue a request begun by targets of `pinned_fingerprint`.
        """
        promised = Counter(self._promised.values())
        loads: dict[int, float] = {}
        for place, cell in enumerate(self._cells):
            state = cell.state
            if state is None or not state.num_targets:
                continue
            if pinned_fingerprint in ("", state.fingerprint):
                loads[place] = (cell.num_requests + promised[place] + 1) / state.num_targets
        return loads


async def _status_of(cell: CellClient) -> public_pb.PoolStatusResponse | None:
    with contextlib.suppress(PoolUnavailableError):
        return await cell.pool_status()
    return None
