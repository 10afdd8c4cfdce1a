"""The service's doors for users: who asks, and what they may read."""
