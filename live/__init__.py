"""SQL over running jobs: tables of what every process of a job does now, read as the job's owner, on its own nodes."""
