"""Several cells behind one ingress: where a request runs, and where it continues."""
