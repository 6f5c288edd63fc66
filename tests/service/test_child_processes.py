"""What Ray starts beside a gRPC server of the same process comes up: the collector is one."""

from __future__ import annotations

from ray._private.services import start_ray_process

from tests.service.collector import collector

NUM_CHILDREN = 4
SLOWLY_FOUND = {"PATH": "/-:" * 20_000 + "/usr/bin:/bin"}
"""Between fork and exec a child looks for its command for so long that its threads have run."""


def test_no_child_dies_before_it_is_its_command() -> None:
    """gRPC's own fork handlers start its threads anew in a child, whose files are closed by then:
    a thread that sees it first aborts the child, without a word."""
    with collector():
        children = [
            start_ray_process(["true"], "raylet", fate_share=False, env_updates=SLOWLY_FOUND)
            for _ in range(NUM_CHILDREN)
        ]
        assert [child.process.wait(timeout=60) for child in children] == [0] * NUM_CHILDREN
