"""Code between Serve's proxies and their clients."""
