"""What benchmarks and tests of a running service share: starting it, finding its processes, loading
it."""
