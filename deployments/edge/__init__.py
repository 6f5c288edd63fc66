"""What stands between Serve's proxies and clients that hold connections without using them."""
