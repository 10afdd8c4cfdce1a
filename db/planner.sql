-- What the planner should believe about this database. Applied anew whenever it changes; new connections see it.
-- Inputs   none.
-- Random reads cost little more than sequential ones on the flash and in the memory that such databases live in. By
-- Postgres's default of 4, made for disks that turn, a day's 12,000 attempts are joined to their verdicts by reading all
-- verdicts ever given: 1.4 s instead of 0.2 s with a million of them. A server on turning disks sets it back:
-- ALTER DATABASE … SET random_page_cost = 4.
-- Compiling a query (jit) costs more than these questions, which indexes answer, ever gain by it.
DO $planner$
BEGIN
    EXECUTE format('ALTER DATABASE %I SET random_page_cost = 1.1', current_database());
    EXECUTE format('ALTER DATABASE %I SET jit = off', current_database());
END
$planner$;
