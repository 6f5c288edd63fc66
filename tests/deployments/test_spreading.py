"""Coordinators of different cells run on different nodes, where there are enough."""

from __future__ import annotations

from ray.serve._private.constants import SERVE_PROXY_NAME
from ray.serve._private.utils import format_actor_name

from deployments.coordinator.node_placement import best_node, should_move
from deployments.coordinator.nodes import PROXY


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


def test_of_nodes_with_as_few_an_entry_is_chosen() -> None:
    assert best_node(0, ["a", "b", "c"], {}, {"c"}) == "c"
    assert best_node(0, ["a", "b"], {1: "b"}, {"b"}) == "a"


def test_a_coordinator_leaves_a_node_that_has_nothing_else() -> None:
    assert should_move(0, "idle", ["a", "b", "idle"], {1: "a"}, {"a", "b"})
    assert should_move(0, "idle", ["a", "idle"], {}, {"a"})


def test_apart_comes_before_in_use() -> None:
    assert not should_move(1, "idle", ["a", "idle"], {0: "a"}, {"a"})
    assert should_move(1, "a", ["a", "idle"], {0: "a"}, {"a"})


def test_where_no_node_or_all_are_entries_nobody_moves() -> None:
    assert not should_move(0, "a", ["a", "b"], {}, set())
    assert not should_move(0, "a", ["a", "b"], {}, {"a", "b"})


def test_proxies_are_called_as_serve_calls_them() -> None:
    assert format_actor_name(SERVE_PROXY_NAME, "0a1b") == f"{PROXY}0a1b"
