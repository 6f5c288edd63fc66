"""The service under more than it can take: bursts, hostile clients, hours at half load.

Modules: questions -> http_exchange, asking -> clients, attacks -> burst, hostile, soak -> commands.
"""
