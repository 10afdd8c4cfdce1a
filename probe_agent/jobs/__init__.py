"""The jobs on this node: their processes, their page directories, and what they leave behind."""
