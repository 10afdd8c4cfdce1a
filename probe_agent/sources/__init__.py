"""One file per source of evidence; `registry` lists them."""
