"""The process that runs on a node of the job for the length of one question or one console: small and bounded."""
