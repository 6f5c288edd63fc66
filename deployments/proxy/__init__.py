"""What stands between Serve's proxies and their clients."""
