"""Measurements of attribution at fleet scale."""
