"""Memory that is damaged."""
