"""Why an attempt ended and what it cost: rules, evidence windows, the engine, ETTR and MTTF."""
