"""How many replicas there should be: signals of the pools in, one decision for all deployments."""
