"""A node of ours on its way from its drain through tests and repair steps back into service, or to a ticket."""
