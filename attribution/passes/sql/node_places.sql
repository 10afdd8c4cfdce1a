-- Current and earlier places of a cluster's nodes.
-- Input    :cluster.
-- Output   every column of probing.node_place.
SELECT * FROM probing.node_place WHERE cluster = :cluster
