"""Coordinators of different cells run on different nodes, where there are enough."""

from __future__ import annotations

from deployments.coordinator.spreading import best_node, should_move


def test_cells_that_start_together_choose_different_nodes() -> None:
    assert [best_node(cell, ["b", "a"], {}) for cell in range(3)] == ["a", "b", "a"]


def test_the_node_with_the_fewest_coordinators_is_chosen() -> None:
    assert best_node(0, ["a", "b", "c"], {1: "a", 2: "b"}) == "c"
    assert best_node(0, ["a", "b"], {1: "a", 2: "a", 3: "b"}) == "b"
    assert best_node(0, [], {1: "a"}) is None


def test_the_highest_cell_of_a_node_moves_to_one_that_has_none() -> None:
    assert should_move(1, "a", ["a", "b"], {0: "a"})
    assert not should_move(0, "a", ["a", "b"], {1: "a"})


def test_nobody_moves_without_room() -> None:
    assert not should_move(1, "a", ["a"], {0: "a"})
    assert not should_move(2, "a", ["a", "b"], {0: "a", 1: "b"})
    assert not should_move(1, "b", ["a", "b"], {0: "a"})
