"""The world of `specdec simulate`: the service's own loops in virtual time.

What is modelled stands around them: models and devices, the network, processes that fail, clients.
"""
