"""Which prompts an audit decodes where: every prompt, every cell, full batches."""

from __future__ import annotations

import pytest

from deployments.cli.verify.cells import ALGORITHMS, PLAIN, Cells, Grid, Task, plan
from specdec_core.config import SpecMethod

GRID = Grid(
    algorithms=ALGORITHMS,
    spec_methods=(SpecMethod.NGRAM, SpecMethod.DRAFT_MODEL),
    spec_tokens=(1, 4, 8),
    batch_sizes=(1, 4, 8, 16),
    temperatures=(0.0, 0.8),
)
NUM_POINTS = 2 * 3 * 4 * 2


def planned(
    num_prompts: int = 64, *, cells: Cells = Cells.RANDOM, every: int = 4, seed: int = 0
) -> dict[str, list[Task]]:
    tasks = plan(GRID, num_prompts, cells=cells, num_in_every_cell=every, seed=seed)
    return {
        algorithm: [task for task in tasks if task.cell.algorithm == algorithm]
        for algorithm in ALGORITHMS
    }


def test_every_algorithm_but_plain_decoding_runs_every_point_once() -> None:
    tasks = planned()
    assert len(tasks[PLAIN]) == 3 * 2
    assert all(task.cell.point.batch_size > 1 for task in tasks[PLAIN])
    for algorithm in ALGORITHMS[1:]:
        points = [task.cell.point for task in tasks[algorithm]]
        assert len(points) == len(set(points)) == NUM_POINTS


def test_the_speculative_algorithms_get_the_same_prompts() -> None:
    prompts = [[task.prompts for task in members] for members in planned().values()]
    assert prompts[1] == prompts[2] == prompts[3]


@pytest.mark.parametrize("every", [0, 4])
def test_every_prompt_is_in_some_cell_and_every_batch_is_full(every: int) -> None:
    for tasks in planned(every=every).values():
        assert {prompt for task in tasks for prompt in task.prompts} == set(range(64))
        for task in tasks:
            assert len(task.prompts) >= max(every, task.cell.point.batch_size)
            assert list(task.prompts) == sorted(set(task.prompts))


def test_a_drawn_cell_holds_more_prompts_than_its_batch() -> None:
    """Else no row would ever take the place of a finished one."""
    tasks = planned(num_prompts=48, every=0)["exspec"]
    batched = [task for task in tasks if task.cell.point.batch_size > 1]
    assert sum(len(task.prompts) > task.cell.point.batch_size for task in batched) >= 2


def test_the_seed_decides_the_draw() -> None:
    assert planned(seed=1) == planned(seed=1)
    assert planned(seed=1) != planned(seed=2)


def test_all_puts_every_prompt_in_every_cell() -> None:
    for tasks in planned(5, cells=Cells.ALL).values():
        assert all(task.prompts == (0, 1, 2, 3, 4) for task in tasks)


@pytest.mark.parametrize("num_prompts", [1, 3])
def test_fewer_prompts_than_a_batch_are_all_taken(num_prompts: int) -> None:
    for tasks in planned(num_prompts).values():
        assert all(len(task.prompts) == num_prompts for task in tasks)


def test_names_tell_cells_apart() -> None:
    names = [task.cell.name for tasks in planned().values() for task in tasks]
    assert len(names) == len(set(names))
    assert "exspec-padded ngram K=8 B=16 T=0.8" in names
    assert "autoregressive B=4 T=0" in names
