"""Drivers of accelerators other than NVIDIA's own: AMD, nouveau, Intel, Habana."""
