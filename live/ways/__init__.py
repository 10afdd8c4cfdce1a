"""How a question comes to the nodes of a job and the rows come back."""
