"""What Serve's proxies say where the ingress replica behind them has died."""
