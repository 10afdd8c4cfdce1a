"""What a sandbox is made of on this machine: directories, ports, daemons, mounts, processes."""
