"""The asker's side: DataFusion over tables whose rows are fetched when a statement needs them."""
