"""Settings of a process: memory, OpenMP threads, garbage collection, import path."""
