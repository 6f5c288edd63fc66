"""The tables of "Batch Speculative Decoding Done Right" (arXiv 2510.22876), measured here.

One command a table; `python -m benchmarks.paper --help` lists them.
"""
