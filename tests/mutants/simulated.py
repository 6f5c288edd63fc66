"""Defects of pool, leases and resume logic that a world of faults must show."""

from functools import partial

from tests.mutants.mutant import CAMPAIGN, Mutant


def _seeded(name: str, path: str, old: str, new: str, breaks: str) -> Mutant:
    return Mutant(name=name, path=path, old=old, new=new, breaks=breaks, killed_by=CAMPAIGN)


_in_scheduler = partial(Mutant, path="specdec_core/scheduler/scheduler.py", killed_by=CAMPAIGN)
_in_live_requests = partial(
    Mutant, path="specdec_core/scheduler/live_requests.py", killed_by=CAMPAIGN
)
_in_driver = partial(Mutant, path="deployments/coordinator/driver.py", killed_by=CAMPAIGN)
_in_open_requests = partial(Mutant, path="deployments/ingress/open_requests.py", killed_by=CAMPAIGN)

MUTANTS = (
    _in_scheduler(
        name="epoch-not-checked",
        old="if replica is None or not is_known or result.epoch != self._epoch:",
        new="if replica is None or not is_known or result.epoch == 0:",
        breaks="an answer to another life of the coordinator is committed",
    ),
    _in_scheduler(
        name="lease-answered-twice",
        old="open_ = replica.leases.pop(result.lease_id)",
        new="open_ = replica.leases.get(result.lease_id)",
        breaks="a lease is never over: its answer is merged as often as it comes",
    ),
    _in_scheduler(
        name="hung-replica-keeps-its-lease",
        old="if deadlines and min(deadlines) <= now:",
        new="if deadlines and min(deadlines) <= 0.0:",
        breaks="the requests of a replica that hangs wait for as long as it does",
    ),
    _seeded(
        "prefixes-believed-beyond-what-was-fed",
        "specdec_core/scheduler/ready_queue.py",
        old="return matched_len - row.base_len",
        new="return len(row.new_ids) if matched_len > row.base_len else 0",
        breaks="streams wait for prompts of which the cache has a block",
    ),
    _in_scheduler(
        name="fenced-with-its-sequences",
        old="        self._stats.record_fence(replica.role, len(replica.leases))\n"
        "        self._requests.evacuate(replica)\n",
        new="        self._stats.record_fence(replica.role, len(replica.leases))\n",
        breaks="requests stay on a replica that is sent nothing",
    ),
    _in_scheduler(
        name="never-reset",
        old="self._commands.append(SendReset(replica.replica_id, replica.info.incarnation))\n",
        new="replica.frees.clear()\n",
        breaks="a replica that once hung is never used again",
    ),
    _in_scheduler(
        name="used-before-it-forgot",
        old="replica.is_fenced = True",
        new="replica.is_fenced = replica.is_draining",
        breaks="a replica that hangs is leased groups on top of those that it still runs",
    ),
    _in_scheduler(
        name="older-attempt-stays",
        old="            self._requests.forget(older, FinishReason.ABORT)\n",
        new="            older.finish_reason = FinishReason.ABORT\n",
        breaks="each resubmission leaves a sequence behind that holds KV for ever",
    ),
    _in_scheduler(
        name="resumed-request-refused-as-full",
        old="is_known = older or request.emitted_token_ids or request.is_background",
        new="is_known = older or request.is_background",
        breaks="a stream that has begun ends with 429 after the coordinator's restart",
    ),
    _in_live_requests(
        name="slot-leaked-at-the-end",
        old="                replica.frees.append(sequence.sequence_id)\n"
        "                replica.remove(sequence, reservation)\n",
        new="                replica.remove(sequence, reservation)\n",
        breaks="replicas keep the KV of every request that has ended",
    ),
    _in_live_requests(
        name="slot-leaked-when-it-leaves",
        old="        replica.frees.append(sequence.sequence_id)\n"
        "        self._remove(replica, sequence)\n",
        new="        self._remove(replica, sequence)\n",
        breaks="replicas keep the KV of every request that was preempted",
    ),
    _in_live_requests(
        name="nobody-waits-again",
        old="            self.waiting.push(sequence)\n        else:",
        new="            self.num_preemptions += 0\n        else:",
        breaks="a request whose target died is never admitted again",
    ),
    _seeded(
        "ended-but-still-queued",
        "specdec_core/scheduler/fair_queue.py",
        old='whether it waits or runs."""\n        self.discard(sequence)\n',
        new='whether it waits or runs."""\n',
        breaks="a request that was cancelled in the queue is run all the same",
    ),
    _in_live_requests(
        name="leases-outlive-their-replica",
        old="        replica.leases.clear()\n",
        new="        replica.wake_at = inf\n",
        breaks="the late answer of a fenced replica is merged",
    ),
    _seeded(
        "blocks-never-come-back",
        "specdec_core/scheduler/replicas.py",
        old="        self.num_unreserved_blocks += reservation.num_blocks\n",
        new="        self.num_unreserved_blocks += 0\n",
        breaks="a target fills up with requests that have ended",
    ),
    _seeded(
        "one-block-too-many",
        "specdec_core/scheduler/replicas.py",
        old="if more > self.num_unreserved_blocks:",
        new="if more > self.num_unreserved_blocks + 1:",
        breaks="a replica is leased more than its memory holds",
    ),
    _seeded(
        "foreign-bits-let-in",
        "specdec_core/scheduler/compatibility.py",
        old="return one.fingerprint == other.fingerprint or not promises_bits",
        new="return promises_bits in (True, False)",
        breaks="a target of other bits goes on with what exact ones began",
    ),
    _seeded(
        "beginner-forgotten",
        "specdec_core/scheduler/results.py",
        old="            sequence.pinned_fingerprint = replica.info.fingerprint\n",
        new="            sequence.pinned_fingerprint = sequence.request.pinned_fingerprint\n",
        breaks="after an update of all targets a running request goes on with other bits",
    ),
    _seeded(
        "two-owners",
        "specdec_core/scheduler/batch_builder.py",
        old="if reservation.row is not None "
        "or (sequence.draft is not None and sequence.is_drafting):",
        new="if reservation.row is not None:",
        breaks="a sequence is leased to its target while its draft still proposes",
    ),
    _seeded(
        "stale-proposal",
        "specdec_core/scheduler/proposals.py",
        old="if current is None or current.committed_len != len(sequence.ids):",
        new="if current is None or current.proposal is None:",
        breaks="a proposal is checked again behind other tokens",
    ),
    _in_live_requests(
        name="event-sent-twice",
        old="        sequence.append(tokens)\n        self._commands.append(event)\n",
        new="        sequence.append(tokens)\n        self._commands += 2 * [event]\n",
        breaks="every token is told twice",
    ),
    _in_live_requests(
        name="client-remembered-for-ever",
        old="        self.waiting.end(sequence)\n",
        new="        self.waiting.discard(sequence)\n",
        breaks="the pool keeps an account of every client that there ever was",
    ),
    _in_scheduler(
        name="time-never-over",
        old="        if self._requests.soonest_deadline <= now:\n",
        new="        if False:\n",
        breaks="a request goes on behind its deadline for an ingress that hangs",
    ),
    _in_driver(
        name="abort-lost-with-the-stream",
        old="            self._guard(partial(self.scheduler.abort, request_id))\n\n    def submit(",
        new="            self.scheduler.status(request_id)\n\n    def submit(",
        breaks="requests of an ingress that died are run to their end for nobody",
    ),
    _in_driver(
        name="abort-lost",
        old="        self._guard(partial(self.scheduler.abort, request_id))\n"
        "        outbox.put_abort",
        new="        self.scheduler.status(request_id)\n        outbox.put_abort",
        breaks="what a client cancels is run to its end",
    ),
    Mutant(
        name="resubmission-answered-elsewhere",
        path="deployments/coordinator/request_table.py",
        old="            self.drop(request.request_id, EndReason.REPLACED)\n"
        "        self._entries[request.request_id] = _Entry(outbox, live)\n",
        new="            pass\n"
        "        self._entries.setdefault(request.request_id, _Entry(outbox, live))\n",
        breaks="a request that is submitted again over another stream is told nothing more",
        killed_by="tests/deployments/coordinator/test_pool_driver.py"
        "::test_a_request_that_is_submitted_again_is_answered_over_its_new_stream",
    ),
    _in_driver(
        name="older-stream-ends-the-newer",
        old="        if self._is_here(replica):\n            info = replica.info\n"
        "            del self.replicas[info.replica_id]\n",
        new="        if True:\n            info = replica.info\n"
        "            self.replicas.pop(info.replica_id, None)\n",
        breaks="a replica that came back at once is sent nothing any more",
    ),
    _seeded(
        "client-counted-for-ever",
        "deployments/coordinator/request_table.py",
        old="            self._tell(self._end, live, RequestEnd(EndReason.FINISHED,",
        new="            self._tell((), live, RequestEnd(EndReason.FINISHED,",
        breaks="a key with a limit of running requests is locked out in the end",
    ),
    _in_open_requests(
        name="gap-not-asked-for",
        old="            return None\n        known",
        new="            return event._replace(token_ids=())\n        known",
        breaks="a client whose news was lost hears nothing more",
    ),
    _in_open_requests(
        name="overlap-told-again",
        old="            token_ids=event.token_ids[overlap:],\n",
        new="            token_ids=event.token_ids,\n",
        breaks="after a restart of the coordinator a client hears tokens twice",
    ),
    _in_open_requests(
        name="gap-taken-for-the-next",
        old="if not 0 <= overlap <= len(entry.emitted):",
        new="if overlap > len(entry.emitted):",
        breaks="tokens are missing in the middle of an answer",
    ),
    _in_open_requests(
        name="resumed-with-other-bits",
        old="pinned_fingerprint=pinned)",
        new="pinned_fingerprint=self.request.pinned_fingerprint)",
        breaks="a resumed request goes on with the bits of whatever target is there",
    ),
    Mutant(
        name="ended-request-stays-open",
        path="deployments/ingress/open_requests.py",
        old="            del self._open[event.request_id]\n        return event",
        new="            entry.pinned_fingerprint = event.pinned_fingerprint\n        return event",
        breaks="an ingress ends requests that have ended, and tells its coordinator of each",
        killed_by="tests/deployments/ingress/test_resuming.py::test_its_last_news_ends_a_request",
    ),
    _seeded(
        "unread-news-replaced",
        "deployments/coordinator/streams.py",
        old="        token_ids=ours.token_ids + theirs.token_ids,\n",
        new="        token_ids=theirs.token_ids,\n",
        breaks="a slow reader loses tokens where its news is merged",
    ),
    _seeded(
        "news-never-merged",
        "deployments/coordinator/streams.py",
        old="            unread[-1] = (merged, failure)\n",
        new="            unread.append((event, failure))\n",
        breaks="what waits for a slow ingress grows with every token",
    ),
    _seeded(
        "round-times-kept",
        "deployments/observability/metrics/round_stages.py",
        old="        lease = self._open.pop(lease_id, None)\n",
        new="        lease = self._open.get(lease_id)\n",
        breaks="the coordinator's memory grows with every round",
    ),
    _in_scheduler(
        name="expires-by-a-clock",
        old="            self._expire(now)\n",
        new='            self._expire(__import__("time").monotonic())\n',
        breaks="a failing seed cannot be replayed, and leases expire at the wrong time",
    ),
    _in_live_requests(
        name="planned-for-a-dead-draft",
        old="            sequence.draft = None\n            self._look_for_draft(sequence)\n",
        new="            sequence.draft = None\n            self._look_for_draft(sequence)\n"
        "            replica.changed.pop(sequence.sequence_id, None)\n",
        breaks="what was planned with a draft that has died is leased as it was",
    ),
    Mutant(
        name="refused-and-run-on",
        path="deployments/coordinator/driver.py",
        old="        self._guard(partial(self.scheduler.abort, request_id))\n"
        "        self.requests.refuse(",
        new="        self.requests.refuse(",
        breaks="a request that was refused after a broken stream still takes a place in the queue",
        killed_by="tests/deployments/coordinator/test_refused_again.py::test_it_is_not_run_on",
    ),
    Mutant(
        name="audited-by-whoever-is-there",
        path="deployments/coordinator/audit.py",
        old="        return Origin(Numerics.EXACT, last.pinned_fingerprint)\n",
        new="        return here\n",
        breaks="an update of all targets makes the audit cry wolf",
        killed_by="tests/deployments/coordinator/test_audit_origin.py"
        "::test_a_request_is_not_replayed_on_targets_that_came_before_its_news",
    ),
    Mutant(
        name="merged-news-names-nobody",
        path="deployments/coordinator/streams.py",
        old="        pinned_fingerprint=ours.pinned_fingerprint,\n",
        new="        pinned_fingerprint=theirs.pinned_fingerprint,\n",
        breaks="a slow reader's request may be resumed on targets of other bits",
        killed_by="tests/deployments/ingress/test_resuming.py"
        "::test_news_that_is_merged_before_it_is_read_still_names_them",
    ),
)
