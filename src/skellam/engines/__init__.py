"""Engines, which run a round: in this process, or over a fleet."""
