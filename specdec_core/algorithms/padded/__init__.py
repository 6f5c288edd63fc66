"""The paper's algorithms over padded batches."""
