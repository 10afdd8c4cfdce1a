"""Messages about accelerators: of their runtimes, their memory and their hardware, and of the kernel in a job's output."""
