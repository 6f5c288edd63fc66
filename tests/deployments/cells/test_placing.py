"""Which cell a request belongs to: the same wherever it is asked, evenly spread, by load if new."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from deployments.wire.cell_ids import less_loaded, new_id_of, order_of


def test_homes_of_chosen_ids_are_spread_evenly_and_so_are_their_stand_ins() -> None:
    orders = [order_of(f"client-{number}", 3) for number in range(6000)]
    assert all(sorted(order) == [0, 1, 2] for order in orders)
    shares = Counter(orders)
    assert len(shares) == 6
    assert all(800 < count < 1200 for count in shares.values())


def test_where_an_id_belongs_is_the_same_in_every_process_and_release() -> None:
    """Ingresses of a rolling redeploy have to agree. The weights are those of `b2sum -l 64`."""
    assert [order_of(name, 4) for name in ("a", "b", "größe")] == [
        (3, 2, 1, 0),
        (0, 2, 1, 3),
        (0, 3, 2, 1),
    ]


@pytest.mark.parametrize("num_cells", [1, 2, 5])
def test_an_id_is_made_for_its_home(num_cells: int) -> None:
    made = {new_id_of(home, num_cells): home for home in range(num_cells) for _ in range(20)}
    assert len(made) == 20 * num_cells
    assert all(order_of(request_id, num_cells)[0] == home for request_id, home in made.items())


def test_the_busier_of_two_is_never_chosen_and_equals_take_turns() -> None:
    random = Random(1)
    assert {less_loaded({3: 2.0, 7: 1.5}, random) for _ in range(100)} == {7}
    equals = Counter(less_loaded({0: 1.0, 1: 1.0}, random) for _ in range(1000))
    assert min(equals.values()) > 400
    assert less_loaded({5: 9.0}, random) == 5


def test_of_many_the_least_loaded_is_not_flooded() -> None:
    """What ingresses know is a second old: all that they send meanwhile must not be one cell's."""
    random = Random(2)
    chosen = Counter(less_loaded({0: 1.0, 1: 2.0, 2: 3.0, 3: 4.0}, random) for _ in range(6000))
    assert chosen[3] == 0
    assert 2700 < chosen[0] < 3300
    assert chosen[2] > 800
