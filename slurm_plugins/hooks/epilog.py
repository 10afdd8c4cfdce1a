"""Slurm Epilog: tells the agent that the job has left this node; always exits 0.

Started as `/usr/bin/python3 -I -S <this file> --socket PATH [--deadline SECONDS]`.
"""

import sys

# -I takes the script's own directory off the path; this one is root's, like the script itself.
sys.path.insert(0, __file__.rpartition("/")[0])

import agent_call  # type: ignore[import-not-found]

agent_call.leave(agent_call.main("epilog"))
