"""The node daemon: sources, spool, delivery and the hook socket."""
