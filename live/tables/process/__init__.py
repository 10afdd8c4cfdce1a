"""Schema `process`: what the kernel knows of each rank's process."""
