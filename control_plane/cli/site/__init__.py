"""Commands about the installation: database, service, doors, doctor, notices, dashboards, completion."""
