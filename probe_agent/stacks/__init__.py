"""Python and C stacks of a process from outside it: no signal, no ptrace, no stop."""
