"""Shared libraries built from our C sources: the NVML stub and the SPANK plugin."""
