"""What a release costs: mechanisms as data, curves as values, all bounds from above."""
