"""The bodies that can sit before the mirror."""
