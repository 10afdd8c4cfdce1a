-- How many results of a round of tests are stored.
-- Inputs   round_id.
SELECT count(*) AS n FROM probing.diagnostic_result r WHERE r.round_id = %(round_id)s::uuid
