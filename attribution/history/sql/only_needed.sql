-- Some columns and rows of another query of the room, so that only these are computed and sent.
-- Written into the text: the quoted names of the columns; that query; the query that selects its rows (only_*_of_*.sql), or nothing.
SELECT $columns FROM (
$query
) q
$rows
