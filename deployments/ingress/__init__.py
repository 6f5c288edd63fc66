"""The ingress, which turns a client's call into a request and the request's tokens into an
answer."""
