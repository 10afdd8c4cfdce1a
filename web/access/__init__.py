"""Who asks, and whether they may: keys, proxies, OpenID Connect, rates, cross-site requests."""
