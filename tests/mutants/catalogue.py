"""Every seeded defect, by area."""

from tests.mutants import (
    drafting,
    exact,
    forward,
    grammar,
    kv,
    padded,
    pool_blocks,
    pool_life,
    pool_rounds,
    prefix_cache,
    processors,
    rounds,
    sampling,
    simulated,
    verification,
    verify,
)

MUTANTS = (
    *verification.MUTANTS,
    *rounds.MUTANTS,
    *sampling.MUTANTS,
    *processors.MUTANTS,
    *kv.MUTANTS,
    *prefix_cache.MUTANTS,
    *padded.MUTANTS,
    *exact.MUTANTS,
    *forward.MUTANTS,
    *drafting.MUTANTS,
    *grammar.MUTANTS,
    *pool_rounds.MUTANTS,
    *pool_life.MUTANTS,
    *pool_blocks.MUTANTS,
    *verify.MUTANTS,
    *simulated.MUTANTS,
)
