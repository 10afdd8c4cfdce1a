"""Nodes that repeatedly end jobs: signals, score, nightly run."""
