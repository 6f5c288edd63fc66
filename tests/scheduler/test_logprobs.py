"""Log-probabilities stay with their tokens: cut where they are cut, resumed where they are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specdec_core.config import SpecMethod
from specdec_core.logprobs import TokenLogprobs
from specdec_core.messages import GroupResult, Role
from specdec_core.request import FinishReason, Request
from tests.scheduler.cell import Cell, Client, config, request
from tests.scheduler.fake_replica import info, logprobs_of, plain_ids, plain_scores


def asking(asked: Request, num_logprobs: int = 2) -> Request:
    return replace(asked, params=replace(asked.params, num_logprobs=num_logprobs))


def expected(client: Client) -> list[TokenLogprobs]:
    """Of the tokens that this attempt was told, by the oracle."""
    asked = client.request
    ids = (*asked.prompt_token_ids, *client.token_ids)
    first = len(asked.prompt_token_ids) + len(asked.emitted_token_ids)
    return [logprobs_of(ids[:end], asked.params) for end in range(first, len(ids))]


def drafting_cell() -> Cell:
    cell = Cell(config(SpecMethod.DRAFT_MODEL, 4))
    cell.join(info("target"))
    cell.join(info("draft", Role.DRAFT), agreement=80)
    return cell


@pytest.mark.parametrize("seed", range(6))
def test_every_token_has_its_own_up_to_a_stop_or_the_budget(seed: int) -> None:
    cell = drafting_cell()
    stopping = cell.add(asking(request("a", seed=seed, max_tokens=30, stop_token_ids=(4,))))
    limited = cell.add(asking(request("b", seed=seed, max_tokens=7)))
    silent = cell.add(request("c", seed=seed, max_tokens=7))
    cell.run()
    for client in (stopping, limited):
        client.check_plain()
        assert client.logprobs == expected(client)
        assert len(client.logprobs) == len(client.token_ids) > 0
    assert silent.token_ids == limited.token_ids
    assert silent.logprobs == []


@pytest.mark.parametrize("num_emitted", [1, 3, 6])
def test_a_resumed_attempt_reports_what_the_earlier_one_has_not(num_emitted: int) -> None:
    cell = drafting_cell()
    whole = asking(request("a", seed=3, max_tokens=9))
    ids, _ = plain_ids(whole)
    client = cell.add(replace(whole, emitted_token_ids=ids[:num_emitted]))
    cell.run()
    assert tuple(client.token_ids) == ids
    assert client.logprobs == expected(client)
    assert len(client.logprobs) == len(ids) - num_emitted


def test_a_replay_on_another_target_loses_and_repeats_none() -> None:
    cell = drafting_cell()
    client = cell.add(asking(request("a", seed=5, max_tokens=20)))
    while len(client.token_ids) < 5:
        assert cell.turn()
    cell.die("target")
    cell.join(info("other"))
    cell.run()
    client.check_plain()
    assert client.reason is FinishReason.LENGTH
    assert client.logprobs == expected(client)


@pytest.mark.parametrize("chunk", [1, 2, 3, 64])
def test_those_of_a_prompt_come_whole_with_its_first_token(chunk: int) -> None:
    """Chunk by chunk, through the loss of its target in the middle of the prompt."""
    cell = Cell(replace(config(SpecMethod.NGRAM, 4), prefill_chunk=chunk))
    cell.join(info("target"))
    asked = request("a", tuple(i % 5 for i in range(17)), max_tokens=9)
    scored = replace(asked, params=replace(asked.params, num_prompt_logprobs=1))
    client, silent = cell.add(scored), cell.add(request("b", max_tokens=9))
    cell.turn()
    cell.turn()
    cell.die("target")
    cell.join(info("other"))
    cell.run()
    client.check_plain()
    assert client.prompt_logprobs == plain_scores(scored)
    assert len(client.prompt_logprobs) == 16
    assert silent.prompt_logprobs == ()


@pytest.mark.parametrize("times", [0, 2])
def test_too_few_or_too_many_of_a_prompt_are_an_error_of_that_request(times: int) -> None:
    cell = Cell(replace(config(), prefill_chunk=3))
    cell.join(info("target"))
    asked = request("a", (1, 2, 3, 4, 0, 1))
    scored = replace(asked, params=replace(asked.params, num_prompt_logprobs=0))
    client, other = cell.add(scored), cell.add(request("b"))
    cell.advance()
    cell.handle("target")
    answer = cell.links["target"].results[0]
    assert isinstance(answer, GroupResult)
    rows = tuple(r._replace(prompt_logprobs=r.prompt_logprobs * times) for r in answer.rows)
    cell.links["target"].results[0] = answer._replace(rows=rows)
    cell.run()
    assert (client.reason, other.reason) == (FinishReason.ERROR, FinishReason.LENGTH)


@pytest.mark.parametrize("times", [0, 2])
def test_too_few_or_too_many_of_them_are_an_error_of_that_request(times: int) -> None:
    cell = Cell(config())
    cell.join(info("target"))
    client, other = cell.add(asking(request("a"))), cell.add(request("b"))
    cell.advance()
    cell.handle("target")
    answer = cell.links["target"].results[0]
    assert isinstance(answer, GroupResult)
    rows = tuple(row._replace(logprobs=row.logprobs * times) for row in answer.rows)
    cell.links["target"].results[0] = answer._replace(rows=rows)
    cell.run()
    assert (client.reason, other.reason) == (FinishReason.ERROR, FinishReason.LENGTH)
