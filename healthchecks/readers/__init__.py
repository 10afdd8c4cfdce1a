"""What checks read of a node: PCI, RDMA ports, mounts, NVML, processes, Slurm's files."""
