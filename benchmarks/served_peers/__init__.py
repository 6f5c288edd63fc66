"""`specdec serve` next to `vllm serve` and `llama-server`: the same requests over HTTP, in turns.

`python -m benchmarks.served_peers setup` makes what the peers need, `run` measures, `report` prints
a stored result again.
"""
