"""Every seeded defect, by area.

`make mutmut` changes every expression of the files in `[tool.mutmut]` (pyproject.toml), so those
files need few records here. Add one for such a file only if mutmut cannot find the defect: the
defect removes a statement, or the test that must notice it is not among the tests that mutmut runs.
"""

from tests.mutants import (
    answers,
    chats,
    exact,
    forward,
    grammar,
    kv,
    native_choice,
    padded,
    prefix_cache,
    processors,
    resume,
    rounds,
    sampling,
    scheduler,
    schemas,
    simulated,
    simulated_drift,
    simulated_streams,
    speculation,
    static_shapes,
    verification,
    verify,
)

MUTANTS = (
    *verification.MUTANTS,
    *rounds.MUTANTS,
    *sampling.MUTANTS,
    *native_choice.MUTANTS,
    *processors.MUTANTS,
    *kv.MUTANTS,
    *prefix_cache.MUTANTS,
    *padded.MUTANTS,
    *exact.MUTANTS,
    *forward.MUTANTS,
    *static_shapes.MUTANTS,
    *grammar.MUTANTS,
    *chats.MUTANTS,
    *answers.MUTANTS,
    *schemas.MUTANTS,
    *scheduler.MUTANTS,
    *speculation.MUTANTS,
    *verify.MUTANTS,
    *resume.MUTANTS,
    *simulated.MUTANTS,
    *simulated_drift.MUTANTS,
    *simulated_streams.MUTANTS,
)
