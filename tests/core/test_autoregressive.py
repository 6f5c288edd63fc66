"""Plain decoding, the reference of everything else, on fake models."""

from __future__ import annotations

from specdec_core import Request, SamplingParams, SchedulerConfig
from specdec_core.engine import AlgorithmName, Engine
from tests.fakes import TokenListModel


def test_a_request_is_admitted_when_it_can_run_to_its_end_beside_the_others() -> None:
    """Each needs 6 blocks at its end and 1 at its start; 13 are there."""
    model = TokenListModel(num_blocks=13, block_size=4)
    config = SchedulerConfig(max_group_size=8)
    engine = Engine(model, config=config, algorithm=AlgorithmName.AUTOREGRESSIVE)
    params = SamplingParams(temperature=0.0, max_tokens=21)
    for index in range(4):
        engine.add_request(
            Request(request_id=str(index), prompt_token_ids=(1, 2, index), params=params)
        )
    most = 0
    while engine.has_work:
        engine.step()
        most = max(most, model.num_slots)
    assert most == 2
