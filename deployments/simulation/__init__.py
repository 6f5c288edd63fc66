"""The world of `specdec simulate`: the real pool and its edges in virtual time.

What is modelled stands around them: replicas, streams, processes that fail, clients.
"""
