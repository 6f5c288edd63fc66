"""Target and draft replicas: a model, and the stream on which its leases come."""
