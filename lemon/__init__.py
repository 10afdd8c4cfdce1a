"""Nodes that keep killing jobs: signals, score, nightly run."""
