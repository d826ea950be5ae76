"""A Flower app written as its PyTorch quickstart is; it knows nothing of skellam."""
