"""Defects of silence, void leases and fences that a world of faults must show."""

from tests.mutants.mutant import Mutant

_FOUND = (
    "tests/simulation/test_campaign.py"
    "::test_no_seed_finds_a_violation_and_everything_that_can_happen_happens",
)

MUTANTS = (
    Mutant(
        name="silent-peer-kept",
        path="deployments/wire/silence.py",
        old="is_over = self._is_waiting and self._num_looks > LOOKS",
        new="is_over = self._is_waiting and self._num_looks > LOOKS * LOOKS",
        breaks="who falls silent is waited for ten times as long",
        killed_by=_FOUND,
    ),
    Mutant(
        name="given-up-although-heard",
        path="deployments/wire/silence.py",
        old="        self._is_waiting = True\n        self._num_looks = 0\n",
        new="        self._is_waiting = True\n",
        breaks="every stream breaks after ten seconds, however much is said on it",
        killed_by=_FOUND,
    ),
    Mutant(
        name="void-lease-runs",
        path="deployments/replica/lives.py",
        old="return life != self.now",
        new="return life > self.now",
        breaks="a replica that was given up runs what nobody waits for before it serves again",
        killed_by=_FOUND,
    ),
    Mutant(
        name="void-lease-timed-for-ever",
        path="deployments/coordinator/pool_driver.py",
        old="            replica.times.void()\n",
        new="            replica.times.sent(-1)\n",
        breaks="the coordinator's memory grows with every fence",
        killed_by=_FOUND,
    ),
)
