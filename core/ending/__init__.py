"""How our commands end: run_command says it, extras names the library that is missing."""
