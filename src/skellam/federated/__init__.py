"""Private federated training: data, models, local training and the server's side (needs torch)."""
