"""One decision for all deployments, and what it says of itself."""

from __future__ import annotations

from deployments.autoscaling.decision import ApplicationState, Decision, Memory, decide
from deployments.autoscaling.signals import CellSignals
from deployments.config.scaling import Bounds, Thresholds
from tests.autoscaling.signals import signals

AIMS = Thresholds(
    window=32, max_group_size=8, up_delay_s=2.0, down_delay_s=5.0, zero_delay_s=5.0, retry_s=100.0
)
BOUNDS = {"target": Bounds(1, 3), "draft": Bounds(0, 2), "ingress": Bounds(1, 4)}
CROWD = signals(num_running=32.0, num_waiting=40.0, num_wanting=32.0, drafted_share=1.0)


class World:
    """Deployments that have what was decided for them, at once."""

    def __init__(self, bounds: dict[str, Bounds]) -> None:
        self.bounds = bounds
        self.current = {name: max(one.least, 1) for name, one in bounds.items()}
        self.memory = Memory()
        self.now = 0.0
        self.lines: list[str] = []

    def second(self, cells: dict[int, CellSignals], num_requests: float = 0.0) -> Decision:
        state = ApplicationState(
            current=self.current, bounds=self.bounds, cells=cells, num_requests=num_requests
        )
        decision = decide(state, AIMS, self.memory, self.now)
        self.memory = decision.memory
        self.current = {**self.current, **decision.numbers}
        self.lines += [str(change) for change in decision.changes]
        self.now += 1.0
        return decision

    def seconds(
        self, number: int, cells: dict[int, CellSignals], num_requests: float = 0.0
    ) -> None:
        for _ in range(number):
            self.second(cells, num_requests)


def test_ingress_target_and_draft_are_decided_together() -> None:
    world = World(BOUNDS)
    busy = signals(
        num_running=32.0,
        num_waiting=40.0,
        num_wanting=32.0,
        num_rounds=50.0,
        drafted_share=1.0,
        draft_busy=1.0,
    )
    world.seconds(3, {0: busy}, num_requests=500.0)
    assert world.current == {"target": 3, "draft": 2, "ingress": 3}


def test_every_change_says_signal_value_threshold_and_numbers() -> None:
    world = World(BOUNDS)
    world.seconds(3, {0: CROWD})
    (line,) = [line for line in world.lines if "target" in line]
    assert line == (
        "autoscaling target: 1 -> 3 because of live_sequences 72 (threshold 32), which asks for "
        "2.25, for 2.0 s"
    )


def test_a_cell_that_says_nothing_keeps_its_numbers() -> None:
    world = World({**BOUNDS, "target-cell-1": Bounds(1, 3)})
    world.seconds(30, {1: CROWD})
    assert world.current["target"] == 1
    assert world.current["target-cell-1"] == 3


def test_a_cell_that_was_silent_starts_its_delay_anew() -> None:
    world = World(BOUNDS)
    world.seconds(2, {0: CROWD})
    world.second({})
    world.seconds(2, {0: CROWD})
    assert world.current["target"] == 1
    world.second({0: CROWD})
    assert world.current["target"] == 3


def test_each_cell_has_numbers_of_its_own() -> None:
    world = World({**BOUNDS, "target-cell-1": Bounds(1, 3), "draft-cell-1": Bounds(0, 2)})
    world.seconds(20, {0: CROWD, 1: signals()})
    assert (world.current["target"], world.current["target-cell-1"]) == (3, 1)
    assert (world.current["draft"], world.current["draft-cell-1"]) == (1, 0)


def test_what_is_not_scaled_is_not_decided() -> None:
    assert (
        decide(
            ApplicationState(
                current={"target": 1}, bounds={"target": BOUNDS["target"]}, cells={}, num_requests=0
            ),
            AIMS,
            Memory(),
            0.0,
        ).numbers
        == {}
    )


NOT_PAYING = signals(
    num_running=16.0, num_wanting=16.0, num_rounds=100.0, drafted_share=0.0, target_load=0.6
)
STARVED = signals(num_running=16.0, num_wanting=16.0, num_drafts=0.0, num_starved=16.0)


def test_drafts_that_do_not_pay_go_and_rest() -> None:
    world = World(BOUNDS)
    world.seconds(6, {0: NOT_PAYING})
    assert world.current["draft"] == 0
    world.seconds(90, {0: STARVED})
    assert world.current["draft"] == 0


def test_drafts_are_tried_again_after_a_rest() -> None:
    world = World(BOUNDS)
    world.seconds(6, {0: NOT_PAYING})
    world.seconds(110, {0: STARVED})
    assert world.current["draft"] == 1


def test_smaller_groups_end_a_rest() -> None:
    world = World(BOUNDS)
    world.seconds(6, {0: NOT_PAYING})
    few = signals(num_running=4.0, num_wanting=4.0, num_drafts=0.0, num_starved=4.0)
    world.seconds(4, {0: few})
    assert world.current["draft"] == 1


def test_drafts_that_went_for_want_of_load_come_back_with_it() -> None:
    world = World(BOUNDS)
    world.seconds(7, {0: signals()})
    assert world.current["draft"] == 0
    world.seconds(3, {0: STARVED})
    assert world.current["draft"] == 1
