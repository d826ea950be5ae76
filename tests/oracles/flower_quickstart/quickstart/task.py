"""Model, data and training."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FEATURES, CLASSES = 16, 4


class Net(nn.Module):
    """Two layers."""

    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(FEATURES, 8)
        self.out = nn.Linear(8, CLASSES)

    def forward(self, x):
        return self.out(torch.relu(self.hidden(x)))


def load_data(partition_id, num_partitions, batch_size):
    """Return loaders of what one client has: points around the centres of their classes."""
    centres = torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(1 + partition_id)
    labels = torch.randint(CLASSES, (120,), generator=generator)
    points = centres[labels] + 0.5 * torch.randn(120, FEATURES, generator=generator)
    parts = TensorDataset(points[:96], labels[:96]), TensorDataset(points[96:], labels[96:])
    return tuple(DataLoader(part, batch_size=batch_size) for part in parts)


def train(net, loader, epochs, lr, device):
    """Train, and return the mean loss."""
    net.to(device).train()
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    total = 0.0
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
            total += loss.item()
    return total / (epochs * len(loader))


def test(net, loader, device):
    """Return mean loss and accuracy."""
    net.to(device).eval()
    correct, total = 0, 0.0
    with torch.no_grad():
        for x, y in loader:
            outputs = net(x.to(device))
            total += nn.functional.cross_entropy(outputs, y.to(device)).item()
            correct += (outputs.argmax(1).cpu() == y).sum().item()
    return total / len(loader), correct / len(loader.dataset)
