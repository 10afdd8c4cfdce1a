"""The demo: a recorded or live incident, and the README's generated parts."""
