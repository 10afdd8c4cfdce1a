"""Reading what machines and jobs write: kernel lines, job logs, flight-recorder dumps. Pure text in, findings out."""
