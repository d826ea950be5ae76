"""Integer noise with a proven distance from its ideal law."""
