"""Handwritten digits, learned by a fleet with distributed differential privacy."""
