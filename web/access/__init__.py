"""Authentication and permission: keys, proxies, OpenID Connect, rates, cross-site requests."""
