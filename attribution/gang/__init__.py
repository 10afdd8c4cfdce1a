"""A gang of ranks seen at one moment: who did not arrive, who arrived with something else, who is slow."""
