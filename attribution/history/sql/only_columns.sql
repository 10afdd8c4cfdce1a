-- Some columns of the rows of another query of the room, which computes and sends no other then.
-- Written into the text: the quoted names of the columns, and that query.
SELECT $columns FROM (
$query
) q
