"""How a round is run: in this process, or over a fleet."""
