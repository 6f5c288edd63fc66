"""Where the time of rounds and answers goes: taken at the wire, told in /metrics and by `bench`."""
