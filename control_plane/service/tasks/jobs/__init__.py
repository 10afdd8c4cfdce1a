"""Tasks about jobs: their attempts, verdicts, accounts, hangs, slow ranks and restarts."""
