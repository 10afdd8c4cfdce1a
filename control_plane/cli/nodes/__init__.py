"""Commands about nodes: what they report, drains, tests, repairs, places, lemons and the drain policy."""
