-- Some columns and rows of another query of the room, which computes and sends no other then.
-- Written into the text: the quoted names of the columns; that query; what picks its rows (only_*_of_*.sql), or nothing.
SELECT $columns FROM (
$query
) q
$rows
