"""Defects of silence, void leases, fences and leaving that a world of faults must show."""

from functools import partial

from tests.mutants.mutant import CAMPAIGN, Mutant

_OUTBOX = "tests/deployments/coordinator/test_outbox.py::"
_LAST = "tests/deployments/coordinator/test_last_target.py::"
_DRIVER = "tests/deployments/coordinator/test_pool_driver.py::"
_in_work_loop = partial(Mutant, path="deployments/replica/work_loop.py")
_in_driver = partial(Mutant, path="deployments/coordinator/driver.py")
_in_draining = partial(Mutant, path="deployments/coordinator/draining.py")
_in_streams = partial(Mutant, path="deployments/coordinator/streams.py")

MUTANTS = (
    Mutant(
        name="silent-peer-kept",
        path="deployments/wire/liveness.py",
        old="if self._is_waiting and self._num_looks > LOOKS:",
        new="if self._is_waiting and self._num_looks > LOOKS * LOOKS:",
        breaks="who falls silent is waited for ten times as long",
        killed_by=CAMPAIGN,
    ),
    Mutant(
        name="given-up-although-heard",
        path="deployments/wire/liveness.py",
        old="        self._is_waiting = True\n        self._num_looks = 0\n",
        new="        self._is_waiting = True\n",
        breaks="every stream breaks after ten seconds, however much is said on it",
        killed_by=CAMPAIGN,
    ),
    _in_work_loop(
        name="void-lease-runs",
        old="if read.generation != self._generation:",
        new="if read.generation > self._generation:",
        breaks="a replica that was given up runs what nobody waits for before it serves again",
        killed_by=CAMPAIGN,
    ),
    _in_driver(
        name="void-lease-timed-for-ever",
        old="            replica.fence()\n",
        new="            replica.is_fenced = True\n",
        breaks="the coordinator's memory grows with every fence",
        killed_by=CAMPAIGN,
    ),
    Mutant(
        name="all-answers-before-a-decision",
        path="deployments/coordinator/service.py",
        old="                    await self._driver.read_in_turn(replica, message.result)\n",
        new="                    self._driver.read_in_turn(replica, message.result)\n"
        "                    self._driver._read_result()\n",
        breaks="of replicas that answer at once each waits until the answers of all are read",
        killed_by=(
            _DRIVER + "test_a_replica_that_answered_is_given_work_before_the_next_answer_is_read",
        ),
    ),
    _in_driver(
        name="last-target-before-the-ingresses",
        old="has_ingress=bool(self._ingresses)",
        new="has_ingress=bool(self.requests.keys())",
        breaks="in a redeploy what comes to an old ingress waits for a target in vain",
        killed_by=(_LAST + "test_it_stays_until_the_last_ingress_has_left",),
    ),
    _in_draining(
        name="who-goes-taken-for-who-stays",
        old="                replica.may_leave = True\n                yield replica\n",
        new="                yield replica\n",
        breaks="of two targets that leave at once none stays until the ingresses have left",
        killed_by=(_LAST + "test_of_all_targets_that_leave_the_last_one_stays",),
    ),
    _in_draining(
        name="who-has-gone-taken-for-who-stays",
        old="            asked.heard_from.discard(replica)\n",
        new="            asked.heard_from.add(replica)\n",
        breaks="a target leaves behind the last one that could have stayed",
        killed_by=(_LAST + "test_beside_a_target_that_has_gone_since_it_stays",),
    ),
    _in_draining(
        name="what-it-says-itself-lets-it-go",
        old="                if other is not replica:\n"
        "                    asked.heard_from.add(replica)\n",
        new="                asked.heard_from.add(replica)\n",
        breaks="the last target does not wait for the ingresses",
        killed_by=(_LAST + "test_what_it_says_itself_does_not_let_it_go",),
    ),
    _in_draining(
        name="who-asked-first-stays",
        old="others.asked_s >= asked.asked_s",
        new="others.asked_s <= asked.asked_s",
        breaks="the target that stays for the ingresses is the one whose time to drain ends first",
        killed_by=(_LAST + "test_of_those_that_leave_who_asked_last_stays",),
    ),
    _in_work_loop(
        name="asked-to-leave-only-once",
        old="        self._request_drain()\n        async with",
        new="        async with",
        breaks="who leaves gets work from the coordinator that follows, until its time is over",
        killed_by=(
            "tests/deployments/coordinator/test_cell.py"
            "::test_a_leaving_replica_asks_the_next_coordinator_too",
        ),
    ),
    _in_draining(
        name="no-ingress-is-expected-back",
        old="has_ingress or now < self._expects_ingress_until",
        new="has_ingress",
        breaks="the last target leaves a new coordinator before its ingresses have come back",
        killed_by=(
            _LAST
            + "test_a_coordinator_that_has_just_begun_expects_the_ingresses_of_the_one_before",
        ),
    ),
    _in_work_loop(
        name="leaves-while-no-coordinator-is-there",
        old="        if self._has_tried and not (self._is_registered or self._was_target):\n",
        new="        if self._has_tried and not self._is_registered:\n",
        breaks="the last target leaves while its coordinator restarts, which it would serve",
        killed_by=(
            "tests/deployments/coordinator/test_cell.py"
            "::test_who_is_asked_to_leave_without_a_coordinator_serves_what_the_next_one_brings",
        ),
    ),
    _in_draining(
        name="a-fenced-target-stays",
        old="other.may_leave or other.is_fenced",
        new="other.may_leave",
        breaks="a target leaves beside one whose pass hangs",
        killed_by=(_LAST + "test_beside_a_target_that_is_fenced_it_stays",),
    ),
    _in_draining(
        name="an-ingress-is-not-expected-back",
        old="now + _INGRESS_COMES_BACK_S",
        new="now",
        breaks="the last target leaves while an ingress's stream is broken for a moment",
        killed_by=(_LAST + "test_when_every_ingress_has_gone_it_leaves_unless_one_comes_back",),
    ),
    _in_driver(
        name="a-replay-holds-who-leaves",
        old="        elif self.auditor.waiting:\n",
        new="        if self.auditor.waiting:\n",
        breaks="who leaves waits for replays that began after it asked",
        killed_by=(
            "tests/deployments/coordinator/test_audit_cell.py"
            "::test_while_a_replica_leaves_no_replay_begins_that_could_hold_it_up",
        ),
    ),
    _in_driver(
        name="nobody-wakes-who-lets-it-go",
        old="                self._wake.set()  # a replica that drains may have waited for it\n",
        new="",
        breaks="an idle service ends only when the time to drain is over",
        killed_by=(_LAST + "test_its_heartbeat_wakes_who_lets_it_go",),
    ),
    _in_streams(
        name="last-token-waits",
        old="can_wait = event.index > 0 and event.finish_reason is None",
        new="can_wait = event.index > 0",
        breaks="under load every answer ends up to 50 ms later",
        killed_by=(_OUTBOX + "test_a_first_or_last_token_goes_at_once_and_alone",),
    ),
    _in_streams(
        name="alarm-rings-for-what-was-read",
        old="        if self._held:  # empty if a last event took the held ones along\n",
        new="        if True:\n",
        breaks="under load the coordinator sends empty messages",
        killed_by=(_OUTBOX + "test_the_last_token_takes_along_what_waits_of_its_request",),
    ),
    _in_streams(
        name="all-that-waits-goes-with-the-last-token",
        old="        if self.is_closed:\n            self._release()\n        else:\n"
        "            self._is_ready.clear()\n",
        new="        self._release()\n        if not self.is_closed:\n"
        "            self._is_ready.clear()\n",
        breaks="each request that begins or ends costs every other stream a chunk",
        killed_by=(_OUTBOX + "test_a_first_or_last_token_goes_at_once_and_alone",),
    ),
    _in_streams(
        name="what-waits-is-lost-at-the-end",
        old="        if self.is_closed:\n            self._release()\n        else:\n"
        "            self._is_ready.clear()\n",
        new="        if not self.is_closed:\n            self._is_ready.clear()\n",
        breaks="a stream that the coordinator closes loses its last tokens",
        killed_by=(_OUTBOX + "test_a_stream_that_closes_delivers_what_waits",),
    ),
    Mutant(
        name="holds-without-bound",
        path="deployments/ingress/scheduler_client.py",
        old="min(wanted_s, MOST_HELD_S)",
        new="wanted_s",
        breaks="a busy ingress lets its clients wait for ever",
        killed_by=(
            "tests/deployments/ingress/test_pace.py"
            "::test_a_busy_ingress_holds_longer_and_longer_up_to_a_bound",
        ),
    ),
)
