"""The public protocols: HTTP and gRPC."""
