"""What `specdec top` shows of two statuses: by hand-made arithmetic, as text."""

from __future__ import annotations

import io

from rich.console import Console

from deployments.cli.top.counts import Poll, lately
from deployments.cli.top.view import away, view
from specdec.v1 import generation_pb2 as pb

EARLIER = pb.PoolStatusResponse(
    epoch=7,
    num_running=3,
    num_waiting=1,
    counters={
        "num_groups": 100,
        "num_equal_length_groups": 10,
        "num_committed": 1000,
        "num_sequence_rounds": 500,
        "num_proposed_rounds": 400,
        "num_drafted": 1600,
        "num_accepted": 600,
        "num_finished_length": 5,
    },
    accepted_per_position=[300, 200, 100],
    group_sizes=[0, 20, 30, 50],
    replicas=[
        pb.ReplicaStatus(
            replica_id="target-a",
            role="target",
            busy_s=50.0,
            num_rows=400,
            num_blocks=100,
            num_free_blocks=60,
            numerics="exact",
        ),
        pb.ReplicaStatus(replica_id="draft-b", role="draft", busy_s=20.0, num_blocks=100),
    ],
)


def later(**changed: object) -> pb.PoolStatusResponse:
    """Two seconds on: 10 groups of 4 rows, 9 of them of equal length, 200 tokens."""
    status = pb.PoolStatusResponse()
    status.CopyFrom(EARLIER)
    added = {
        "num_groups": 10,
        "num_equal_length_groups": 9,
        "num_committed": 200,
        "num_sequence_rounds": 40,
        "num_proposed_rounds": 20,
        "num_drafted": 40,
        "num_accepted": 20,
        "num_finished_length": 4,
        "num_finished_error": 2,
    }
    for name, count in added.items():
        status.counters[name] += count
    status.accepted_per_position[:] = [315, 205, 100]
    status.group_sizes[:] = [0, 20, 30, 50, 10]
    status.replicas[0].busy_s += 1.5
    status.replicas[0].num_rows += 40
    status.audit.num_audited = 12
    for name, value in changed.items():
        setattr(status, name, value)
    return status


def shown(status: pb.PoolStatusResponse, earlier: pb.PoolStatusResponse | None = EARLIER) -> str:
    console = Console(file=io.StringIO(), width=120, force_terminal=False)
    before = None if earlier is None else Poll(earlier, 10.0)
    console.print(view("host:9000", Poll(status, 12.0), before))
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def values(text: str, title: str) -> dict[str, str]:
    """A table of one line: by the names of its columns."""
    lines = text.splitlines()
    place = next(i for i, line in enumerate(lines) if line.startswith(title + " "))
    head, line = lines[place], lines[place + 1]
    names = [name.strip() for name in head.removeprefix(title).split("  ") if name.strip()]
    starts = [head.index(name, len(title)) for name in names]
    ends = [*starts[1:], len(line)]
    return {n: line[a:b].strip() for n, a, b in zip(names, starts, ends, strict=True)}


def test_rates_and_shares_are_of_the_time_between_two_looks() -> None:
    text = shown(later())
    assert "the last 2.0 s" in text
    pool = values(text, "pool")
    assert (pool["running"], pool["waiting"], pool["KV"]) == ("3", "1", "40%")
    assert (pool["tokens/s"], pool["requests/s"]) == ("100.0", "3.0")
    groups = values(text, "groups")
    assert (groups["formed"], groups["rows each"], groups["most often"]) == ("10", "4.0", "4")
    assert groups["equal length"] == "90%"


def test_acceptance_by_position_is_of_the_rounds_with_a_proposal() -> None:
    lines = [line.split() for line in shown(later()).splitlines()]
    by_position = {line[3]: line[4] for line in lines if line[:3] == ["accepted", "at", "position"]}
    assert by_position == {"1": "75%", "2": "25%", "3": "0%"}
    assert ["rounds", "with", "a", "proposal", "50%", "█" * 10] in lines
    assert ["drafted", "tokens", "accepted", "50%", "█" * 10] in lines


def test_a_replica_is_busy_by_its_own_clock() -> None:
    lines = {line.split()[0]: line.split() for line in shown(later()).splitlines() if line.split()}
    assert lines["target-a"][1:5] == ["75%", "20.0", "0", "40%"]
    assert lines["draft-b"][1:3] == ["0%", "0.0"]


def test_how_requests_ended_and_what_the_audit_found_is_of_all_time() -> None:
    requests = values(shown(later()), "requests")
    assert (requests["length"], requests["error"]) == ("9", "2")
    assert (requests["audited"], requests["diverged"]) == ("12", "0")


def test_a_first_look_has_no_rates_and_shares_of_all_time() -> None:
    text = shown(EARLIER, None)
    assert "all time" in text
    assert values(text, "pool")["tokens/s"] == "-"
    assert values(text, "groups")["equal length"] == "10%"


def test_another_life_of_the_coordinator_counts_from_its_beginning() -> None:
    """It has begun within the two seconds, and so have its replicas for it."""
    status = later(epoch=8)
    status.counters["num_committed"] = 50
    status.replicas[0].busy_s, status.replicas[0].num_rows = 0.5, 12
    text = shown(status)
    assert values(text, "pool")["tokens/s"] == "25.0"
    (line,) = [line.split() for line in text.splitlines() if line.startswith("target-a")]
    assert line[1:3] == ["25%", "6.0"]


def test_a_replica_that_has_just_come_has_no_rates() -> None:
    status = later()
    status.replicas[0].replica_id = "target-new"
    (line,) = [line.split() for line in shown(status).splitlines() if "target-new" in line]
    assert line[1:3] == ["-", "-"]


def test_what_the_coordinators_refused_or_failed_is_told_by_why() -> None:
    assert values(shown(later()), "refused") == {"none": ""}
    status = later()
    status.counters["num_rejected_queue_full"] = 1234
    status.counters["num_rejected_client_limit"] = 0
    status.counters["num_failed_deadline"] = 2
    found = values(shown(status), "refused")
    assert found == {"queue_full": "1,234", "failed: deadline": "2"}


def test_a_quiet_service_shows_rates_of_nothing_and_shares_of_all_time() -> None:
    text = shown(EARLIER)
    assert values(text, "pool")["tokens/s"] == "0.0"
    assert values(text, "groups")["equal length"] == "10%"


def test_a_service_without_anything_is_shown() -> None:
    pool = values(shown(pb.PoolStatusResponse(), None), "pool")
    assert (pool["running"], pool["KV"]) == ("0", "-")


def test_states_of_replicas_are_told() -> None:
    status = later()
    status.replicas[0].is_fenced = True
    status.replicas[1].is_draining = True
    text = shown(status)
    assert "fenced" in next(line for line in text.splitlines() if line.startswith("target-a"))
    assert "leaving" in next(line for line in text.splitlines() if line.startswith("draft-b"))


def test_each_cell_has_a_line_and_its_replicas_its_number() -> None:
    status = later(epoch=0)
    for number, epoch in enumerate((7, 9)):
        one = status.cells.add()
        one.CopyFrom(EARLIER)
        one.cell, one.epoch, one.num_running = number, epoch, 5 + number
    status.replicas[1].cell = 1
    text = shown(status, None)
    cells = [line.split() for line in text[text.index("cell ") :].splitlines()]
    assert [line[:5] for line in cells[1:3]] == [
        ["0", "5", "1", "1", "1"],
        ["1", "6", "1", "1", "1"],
    ]
    assert "1: draft-b" in text


def test_one_cell_that_was_away_makes_no_negative_rates() -> None:
    """The sum falls when one is missing, and jumps when it is back."""
    both, one = pb.PoolStatusResponse(), pb.PoolStatusResponse()
    for status, epochs in ((both, (7, 9)), (one, (7,))):
        for number, epoch in enumerate(epochs):
            cell = status.cells.add(cell=number, epoch=epoch)
            cell.counters["num_committed"] = 1000
        status.counters["num_committed"] = 1000 * len(epochs)
    assert lately(Poll(one, 2.0), Poll(both, 1.0))["num_committed"] == 0
    assert lately(Poll(both, 2.0), Poll(one, 1.0))["num_committed"] == 0


def test_who_is_away_is_named() -> None:
    console = Console(file=io.StringIO(), width=120)
    console.print(away("host:9000 does not answer: refused"))
    file = console.file
    assert isinstance(file, io.StringIO)
    assert file.getvalue().strip() == "host:9000 does not answer: refused; trying again"
