"""Defects of what clients share: turns, places in the queue, hints, deadlines."""

from tests.mutants.mutant import Mutant

_SHARES = "tests/pool/test_fair_shares.py::"
_QUEUE = "tests/pool/test_shared_queue.py::"
_TIMEOUTS = "tests/pool/test_timeouts.py::"

MUTANTS = (
    Mutant(
        name="prompts-not-counted",
        path="specdec_core/scheduler/fair_queue.py",
        old="account.num_served += len(sequence.ids)",
        new="account.num_served += 1",
        breaks="a client of long prompts has most of the service",
        killed_by=(_SHARES + "test_long_prompts_count_too",),
    ),
    Mutant(
        name="answers-not-counted",
        path="specdec_core/scheduler/results.py",
        old="sequence.account.num_served += num_tokens",
        new="sequence.account.num_served += 0",
        breaks="a client of long answers has most of the service",
        killed_by=(_SHARES + "test_answers_count_while_they_are_made",),
    ),
    Mutant(
        name="idle-client-hoards",
        path="specdec_core/scheduler/fair_queue.py",
        old="account.num_served = max(account.num_served, self._level)",
        new="account.num_served = max(account.num_served, 0)",
        breaks="who was away for a day keeps all others waiting when it returns",
        killed_by=(_SHARES + "test_who_was_away_has_no_credit_for_it",),
    ),
    Mutant(
        name="level-never-rises",
        path="specdec_core/scheduler/fair_queue.py",
        old="self._level = max(self._level, account.num_served)",
        new="self._level = max(self._level, 0)",
        breaks="a new client is served alone until it has had as much as the others ever had",
        killed_by=(
            _SHARES + "test_the_next_is_always_the_one_that_a_look_at_everybody_finds",
            _SHARES + "test_who_was_away_has_no_credit_for_it",
        ),
    ),
    Mutant(
        name="debt-forgotten",
        path="specdec_core/scheduler/fair_queue.py",
        old="has_had_more = account.num_served > self._level and self.num_waiting_clients > 0",
        new="has_had_more = False",
        breaks="a client that sends one long request after the other pays for none",
        killed_by=(_SHARES + "test_who_had_much_waits_for_it_when_it_comes_back_at_once",),
    ),
    Mutant(
        name="every-client-remembered",
        path="specdec_core/scheduler/fair_queue.py",
        old="has_had_more = account.num_served > self._level and self.num_waiting_clients > 0",
        new="has_had_more = True",
        breaks="the coordinator's memory grows with every client that there ever was",
        killed_by=(_SHARES + "test_a_thousand_clients_leave_nothing_behind",),
    ),
    Mutant(
        name="older-turn-trusted",
        path="specdec_core/scheduler/fair_queue.py",
        old="elif turn[0] in (_GOES_ON, account.num_served):",
        new="elif turn[0] >= _GOES_ON:",
        breaks="what clients were served since they began to wait does not count",
        killed_by=(_SHARES + "test_the_next_is_always_the_one_that_a_look_at_everybody_finds",),
    ),
    Mutant(
        name="turns-pile-up",
        path="specdec_core/scheduler/fair_queue.py",
        old="if len(self._turns) > 2 * self.num_waiting_clients + _SPARE:",
        new="if len(self._turns) > 10_000_000 * self.num_waiting_clients + _SPARE:",
        breaks="a client that sends and aborts fills the coordinator's memory",
        killed_by=(_SHARES + "test_a_head_that_changes_a_thousand_times_leaves_no_turns",),
    ),
    Mutant(
        name="preempted-waits-for-its-turn",
        path="specdec_core/scheduler/fair_queue.py",
        old="return sequence.admitted_at is not None or len(",
        new="return len(",
        breaks="an answer stands still while requests of others begin",
        killed_by=(_SHARES + "test_a_preempted_request_goes_on_before_others_begin",),
    ),
    Mutant(
        name="resumed-waits-for-its-turn",
        path="specdec_core/scheduler/fair_queue.py",
        old="or len(sequence.request.emitted_token_ids) > 0",
        new="or len(sequence.request.emitted_token_ids) < 0",
        breaks="after a restart of the coordinator answers stand still while others begin",
        killed_by=(
            _SHARES + "test_what_another_life_of_the_pool_began_goes_on_before_others_begin",
        ),
    ),
    Mutant(
        name="pushed-out-by-the-overtaken",
        path="specdec_core/scheduler/fair_queue.py",
        old="sequence.rank = best_rank, sequence.sequence_id",
        new="sequence.rank = sequence.rank[0], sequence.sequence_id",
        breaks="where memory is short a flood preempts the single request beside it for ever",
        killed_by=(_SHARES + "test_whom_it_overtook_does_not_push_it_out_again",),
    ),
    Mutant(
        name="full-queue-keeps-others-out",
        path="specdec_core/scheduler/fair_queue.py",
        old="return self._shares.num_waiting(client) > share",
        new="return share >= 0",
        breaks="one client fills the queue and no other is let in",
        killed_by=(_QUEUE + "test_a_client_that_fills_the_queue_does_not_keep_others_out",),
    ),
    Mutant(
        name="every-client-has-a-queue",
        path="specdec_core/scheduler/fair_queue.py",
        old="share = _share(num_places, self._shares.num_waiting_clients)",
        new="share = num_places",
        breaks="the queue is as many times too long as there are clients",
        killed_by=(
            _QUEUE + "test_beyond_its_share_a_client_is_refused_like_any_other",
            _QUEUE + "test_the_queue_is_bounded_and_open_to_whoever_has_nothing_in_it",
        ),
    ),
    Mutant(
        name="another-one-refused",
        path="specdec_core/scheduler/scheduler.py",
        old="            self._registry.forget(sequence, FinishReason.ABORT)\n            raise",
        new="            self._registry.forget(self._placement.waiting.first, FinishReason.ABORT)\n"
        "            raise",
        breaks="a request that waits vanishes without a word when another one is refused",
        killed_by=(_QUEUE + "test_nobody_who_waits_is_refused_for_a_newcomer",),
    ),
    Mutant(
        name="rate-of-an-earlier-queue",
        path="specdec_core/scheduler/admission.py",
        old="        if self._since is not None:\n            self._since,",
        new="        if self._since == 0.5:\n            self._since,",
        breaks="after a quiet hour the first who is refused is told to wait for a minute",
        killed_by=(_QUEUE + "test_an_empty_queue_forgets_its_rate",),
    ),
    Mutant(
        name="deadline-ignored",
        path="specdec_core/scheduler/live_requests.py",
        old="if not self._heap or self._heap[0][0] > now:",
        new="if not self._heap or self._heap[0][0] >= 0:",
        breaks="the requests of an ingress that hangs are run to their end for nobody",
        killed_by=(
            _TIMEOUTS + "test_a_waiting_request_is_ended_when_its_time_is_over_and_not_before",
            "tests/deployments/ingress/test_deadlines.py"
            "::test_the_pool_ends_a_request_whose_ingress_never_reads",
        ),
    ),
    Mutant(
        name="deadline-of-an-older-attempt",
        path="specdec_core/scheduler/live_requests.py",
        old="is_it = sequence is not None and sequence.sequence_id == sequence_id",
        new="is_it = sequence is not None and sequence.sequence_id >= sequence_id",
        breaks="a request that is sent again ends at the deadline of its first attempt",
        killed_by=(_TIMEOUTS + "test_a_later_attempt_has_a_time_of_its_own",),
    ),
    Mutant(
        name="nobody-woken-at-a-deadline",
        path="specdec_core/scheduler/scheduler.py",
        old="        if soonest is not None:\n            times.append(soonest)\n",
        new="        if soonest is not None and not times:\n            times.append(soonest)\n",
        breaks="a deadline is noticed when something else happens",
        killed_by=(_TIMEOUTS + "test_a_deadline_is_looked_at_however_long_the_lease_lasts",),
    ),
    Mutant(
        name="ended-requests-remembered",
        path="specdec_core/scheduler/live_requests.py",
        old="        if len(self._heap) > self._most_entries:",
        new="        if len(self._heap) > 1_000 * self._most_entries:",
        breaks="every request is remembered until its deadline",
        killed_by=(_TIMEOUTS + "test_what_ended_in_time_is_forgotten_long_before",),
    ),
)
