"""The edge: Ray Serve applications, the coordinator, the replicas, the ingress and the CLI."""
