"""What of one job can be seen on one of its nodes, by the job's owner; standard library only."""
