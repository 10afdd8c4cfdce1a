"""What vendor codes mean: generated tables with our sentences, read on first use."""
