"""Defects in what the simulation used to tell by hand, and left out: it runs the service's code."""

from functools import partial

from tests.mutants.mutant import CAMPAIGN, Mutant

_in_work_loop = partial(Mutant, path="deployments/replica/work_loop.py")

MUTANTS = (
    Mutant(
        name="answers-are-not-checked",
        path="deployments/wire/lease_codec.py",
        old="    if ids and not 0 <= min(ids) <= max(ids) < vocab_size:\n",
        new="    if ids and not 0 <= min(ids):\n",
        breaks="a broken replica's ids reach clients, and every replica that goes on behind them",
        killed_by=CAMPAIGN,
    ),
    Mutant(
        name="occupancy-is-not-noted",
        path="deployments/coordinator/driver.py",
        old="self.on_result(replica, result, message.occupancy, message.held_s)",
        new="self.on_result(replica, result, replica.occupancy, message.held_s)",
        breaks="the status of a busy replica's memory is a second old",
        killed_by=CAMPAIGN,
    ),
    _in_work_loop(
        name="leaves-before-its-first-stream",
        old="if self._has_tried and not (self._is_registered or self._was_target):",
        new="if not (self._is_registered or self._was_target):",
        breaks="a target that is replaced while it connects leaves clients without any",
        killed_by="tests/deployments/coordinator/test_cell.py"
        "::test_who_is_asked_to_leave_before_its_first_stream_serves_who_waits_for_it",
    ),
    _in_work_loop(
        name="reset-reads-on",
        old="                self._generation += 1\n                await self._loop",
        new="                await self._loop",
        breaks="a replica that was given up runs what nobody waits for before it serves again",
        killed_by=CAMPAIGN,
    ),
    _in_work_loop(
        name="stream-loss-forgets-nothing",
        old="        await self._loop.run_in_executor(self._executor, self._runner.reset)\n"
        "        self._outgoing",
        new="        self._outgoing",
        breaks="a replica that registers anew keeps blocks that nobody frees",
        killed_by=CAMPAIGN,
    ),
    Mutant(
        name="lost-stream-starts-anew",
        path="deployments/ingress/scheduler_client.py",
        old="            self._submit(entry, resume=was_sent)\n",
        new="            self._submit(entry, resume=False)\n",
        breaks="after a broken stream clients are told that their request is in use",
        killed_by=(
            "tests/deployments/ingress/test_pool_client.py"
            "::test_a_request_is_new_on_its_first_stream_and_resumed_on_the_next"
        ),
    ),
    Mutant(
        name="gap-is-not-asked-for",
        path="deployments/ingress/scheduler_client.py",
        old="            self._submit(entry, resume=True)\n",
        new="            pass\n",
        breaks="a client whose news was lost waits for ever",
        killed_by=CAMPAIGN,
    ),
    Mutant(
        name="the-silent-are-kept-by-the-service",
        path="deployments/coordinator/service.py",
        old="async for message in received(messages, self._silence_s):",
        new="async for message in messages:",
        breaks="a replica whose machine is gone keeps its sequences until TCP gives up",
        killed_by=CAMPAIGN,
    ),
)
