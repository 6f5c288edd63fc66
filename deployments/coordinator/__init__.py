"""The coordinator: one cell's pool, and the streams of its ingresses and replicas."""
