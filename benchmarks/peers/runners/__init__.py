"""One module an engine, run by the Python of its own virtual environment.

A runner imports its engine, the standard library and benchmarks.peers.messages; only
specdec_engine, which runs in this environment, imports more of the repository.
"""
