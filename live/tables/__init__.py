"""One file per table; `registry` lists them."""
