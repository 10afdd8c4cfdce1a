"""PyTorch flight-recorder dumps: loaded without trusting them, aligned across ranks, judged."""
