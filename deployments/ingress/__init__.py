"""The ingress: from a client's call to a request of the pool, and from its tokens to an answer."""
