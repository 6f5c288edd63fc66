"""Measure what a service adds to a round, with a modelled device inside its replicas."""
