"""specdec beside other engines: the same prompts, batch, dtype, threads and tokens, in turns.

`python -m benchmarks.peers setup` makes a virtual environment for each engine, `run` measures.
"""
