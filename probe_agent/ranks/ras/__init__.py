"""NCCL's RAS listener: what the library itself reports of a stalled communicator."""
