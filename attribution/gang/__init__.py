"""A gang of ranks at one moment: missing ranks, ranks in another collective, slow ranks."""
