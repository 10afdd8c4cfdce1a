"""Running gangs as the service sees them: ranks, stacks and pace."""
