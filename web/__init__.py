"""Pages and API: what is bad now, and why, for people before they type and for programs."""
