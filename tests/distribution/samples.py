"""The settings that are tested, and one sample of all processors for each."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import pytest

from specdec_core.config import SpecMethod
from specdec_core.engine import AlgorithmName
from tests.distribution.processors import PROCESSORS
from tests.distribution.runs import Sample, Setting, draw

PLAIN = Setting(algorithm=AlgorithmName.AUTOREGRESSIVE, batch=192)
SEEDS_BY_SETTING = {
    PLAIN: 800,
    Setting(): 250,
    Setting(method=SpecMethod.NGRAM, k=1, batch=7): 150,
    Setting(method=SpecMethod.NGRAM, k=3): 250,
    Setting(method=SpecMethod.NGRAM, k=8, batch=16): 150,
    Setting(method=SpecMethod.DRAFT_MODEL, k=1): 150,
    Setting(method=SpecMethod.DRAFT_MODEL, k=3, batch=7): 150,
    Setting(method=SpecMethod.DRAFT_MODEL, k=8): 150,
    Setting(method=SpecMethod.HYBRID, k=3, batch=16): 100,
    Setting(algorithm=AlgorithmName.EQSPEC, method=SpecMethod.DRAFT_MODEL, k=3, batch=16): 120,
    Setting(algorithm=AlgorithmName.EXSPEC_PADDED, method=SpecMethod.NGRAM, k=8, batch=16): 120,
}
"""Seeds of every processor. What so few detect is in test_wrong_laws.py."""

_FEW = (
    PLAIN,
    Setting(method=SpecMethod.HYBRID, k=3, batch=16),
    Setting(algorithm=AlgorithmName.EQSPEC, method=SpecMethod.DRAFT_MODEL, k=3, batch=16),
    Setting(algorithm=AlgorithmName.EXSPEC_PADDED, method=SpecMethod.NGRAM, k=8, batch=16),
)
"""Every algorithm and every method."""


MANY_SEEDS = 21_000


def cases(settings: Iterable[Setting]) -> list[Any]:
    """Parameters of a test: what `make test` needs not have is nightly."""
    return [s if s in _FEW else pytest.param(s, marks=pytest.mark.nightly) for s in settings]


@cache
def sample_of(setting: Setting) -> Sample:
    """Every setting decodes seeds of its own: equal ones would emit equal ids, one sample twice."""
    first_seed = 1000 * list(SEEDS_BY_SETTING).index(setting)
    return draw(setting, PROCESSORS, first_seed=first_seed, num_seeds=SEEDS_BY_SETTING[setting])


@cache
def many_of(name: str) -> Sample:
    """Plain decoding of one processor with so many seeds that small errors show."""
    processors = {name: PROCESSORS[name]}
    return draw(PLAIN, processors, first_seed=100_000, num_seeds=MANY_SEEDS)
