"""The training ranks of the node's jobs: pages, deaths, stalls, progress, snapshots."""
