"""GenerationService over gRPC."""
