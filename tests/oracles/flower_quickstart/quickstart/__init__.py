"""A Flower app in the shape of its PyTorch quickstart; it knows nothing of skellam."""
