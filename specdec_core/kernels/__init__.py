"""CPU kernels in C, their build, and their calls from Python."""
