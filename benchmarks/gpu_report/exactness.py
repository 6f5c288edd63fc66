"""Token IDs of every algorithm and drafter, at several batches, against plain decoding of each
prompt alone: the random weights choose in earnest. Recorded and eager passes are judged apart."""

from __future__ import annotations

import gc
import random
from collections.abc import Sequence

from benchmarks.gpu_report.arranged import Decoded, Way, decode, drafted_from, engine, lookups
from benchmarks.gpu_report.networks import Network, Pair, cached_pair, random_networks
from benchmarks.gpu_report.results import Findings
from benchmarks.gpu_report.settings import Settings, Sizes
from benchmarks.paper.answer_book import AnswerBook
from specdec_core import Request, SamplingParams, SpecMethod
from specdec_core.engine import AlgorithmName
from specdec_core.errors import NotExactError
from specdec_core.loading.self_check import make_exact

_ACCEPTANCE = 0.7
_SHORTEST = 5
_DRAFTERS = (SpecMethod.DRAFT_MODEL, SpecMethod.NGRAM, SpecMethod.HYBRID)
_PADDED = (AlgorithmName.EQSPEC, AlgorithmName.EXSPEC_PADDED)


def measure(settings: Settings, findings: Findings) -> None:
    sizes = settings.sizes
    networks = random_networks(settings)
    _judge_mode("recorded", networks, all_ways(sizes.batches), sizes, findings)
    gc.collect()  # the first cache is gone before the second is taken
    few = [Way(rows=sizes.batches[0], method=method) for method in (_DRAFTERS[0], SpecMethod.NONE)]
    _judge_mode("eager", networks, few, sizes, findings)


def all_ways(batches: Sequence[int]) -> list[Way]:
    """Every drafter at every batch; the padded algorithms, which know one drafter, at all but 1,
    where plain decoding is the reference itself."""
    ways: list[Way] = []
    for rows in batches:
        ways += [Way(rows=rows, method=method) for method in _DRAFTERS]
        if rows > 1:
            ways.append(Way(rows=rows))
            ways += [
                Way(rows=rows, method=SpecMethod.DRAFT_MODEL, algorithm=padded)
                for padded in _PADDED
            ]
    return ways


def _judge_mode(
    mode: str,
    networks: tuple[Network, Network],
    ways: Sequence[Way],
    sizes: Sizes,
    findings: Findings,
) -> None:
    max_len = sizes.max_prompt_len + sizes.answer_len + 2 * sizes.max_k
    rows = 2 * max(way.rows for way in ways)
    is_recorded = mode == "recorded"
    pair = cached_pair(networks, rows=rows, max_len=max_len, is_recorded=is_recorded)
    try:
        findings.fact(f"exact classes, {mode}", str(make_exact(pair.target)))
    except NotExactError as error:
        findings.fact(f"exact numerics refused, {mode}", str(error))
    requests = requests_of(sizes, pair.target.vocab_size)
    reference = decode(engine(Way(rows=1), pair.target, None), requests).answers
    for way in ways:
        found = _arranged(pair, way, requests, reference)
        write_equal(findings, f"{mode} passes", way, reference, found, pair.target.numerics)


def requests_of(sizes: Sizes, vocab_size: int) -> list[Request]:
    """Random prompts of all lengths, greedy and sampled in turn."""
    rng = random.Random(0)
    made = []
    for number in range(sizes.num_prompts):
        length = rng.randint(_SHORTEST, sizes.max_prompt_len)
        params = SamplingParams(
            temperature=0.8 * (number % 2), seed=number, max_tokens=sizes.answer_len
        )
        prompt = tuple(rng.randrange(vocab_size) for _ in range(length))
        made.append(Request(request_id=str(number), prompt_token_ids=prompt, params=params))
    return made


def _arranged(
    pair: Pair, way: Way, requests: Sequence[Request], answers: Sequence[tuple[int, ...]]
) -> Decoded:
    """Proposals are right often enough for rollbacks and acceptances of every length."""
    prompts = [request.prompt_token_ids for request in requests]
    book = AnswerBook(prompts, answers, probability=_ACCEPTANCE, vocab_size=pair.target.vocab_size)
    with lookups(way, book):
        return decode(engine(way, pair.target, drafted_from(book, pair.draft)), requests)


def write_equal(
    findings: Findings,
    what: str,
    way: Way,
    reference: Sequence[tuple[int, ...]],
    found: Decoded,
    numerics: str,
) -> None:
    pairs = list(zip(reference, found.answers, strict=True))
    wrong = [number for number, (expected, got) in enumerate(pairs) if expected != got]
    findings.row(
        "token IDs",
        what=what,
        way=way.name,
        rows=way.rows,
        numerics=str(numerics),
        prompts=len(pairs),
        equal=len(pairs) - len(wrong),
        accepted=found.stats.num_accepted,
        first_wrong=wrong[0] if wrong else None,
        tokens_per_s=found.tokens_per_second,
    )
