-- Of pg_attempts.sql's rows `q`: attempts that ended well, and those that infrastructure may have ended (fleet_base.sql's infra is stricter).
WHERE q.state IN ('COMPLETED', 'NODE_FAIL', 'BOOT_FAIL') OR q.domain IN ('hardware', 'system_software')
