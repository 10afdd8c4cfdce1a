"""The operators' side: `probing-ctl`, the scheduled service, and the policy that may touch nodes."""
