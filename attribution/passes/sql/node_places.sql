-- Where the nodes of a cluster are and were.
-- Input    :cluster.
-- Output   every column of probing.node_place.
SELECT * FROM probing.node_place WHERE cluster = :cluster
