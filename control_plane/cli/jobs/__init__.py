"""Commands about jobs: verdicts, what kernel lines and job logs mean, and questions to running processes."""
