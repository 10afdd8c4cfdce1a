-- What the views' columns mean, after all of them are made.
-- A view's column that is a table's (or an earlier view's) column means what it means there.
DO $comments$
DECLARE
    c record;
    n_new int := 1;
BEGIN
    WHILE n_new > 0 LOOP
        n_new := 0;
        FOR c IN
            SELECT v.relname AS view, a.attname AS col, min(d.description) AS meaning
            FROM pg_class v
            JOIN pg_attribute a ON a.attrelid = v.oid AND a.attnum > 0
            JOIN pg_rewrite w ON w.ev_class = v.oid
            JOIN pg_depend p ON p.objid = w.oid AND p.classid = 'pg_rewrite'::regclass AND p.refclassid = 'pg_class'::regclass
            JOIN pg_attribute s ON s.attrelid = p.refobjid AND s.attnum = p.refobjsubid AND s.attname = a.attname
            JOIN pg_description d ON d.objoid = s.attrelid AND d.objsubid = s.attnum AND d.classoid = 'pg_class'::regclass
            WHERE v.relnamespace = 'ops'::regnamespace AND v.relkind = 'v' AND v.oid <> s.attrelid
              AND col_description(v.oid, a.attnum) IS NULL
            GROUP BY v.relname, a.attname
        LOOP
            EXECUTE format('COMMENT ON COLUMN ops.%I.%I IS %L', c.view, c.col, c.meaning);
            n_new := n_new + 1;
        END LOOP;
    END LOOP;
END
$comments$;
