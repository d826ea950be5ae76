"""Model, training, and data: images of the size of CIFAR-10's, made up instead of downloaded."""

import torch
from torch import nn
from torch.utils.data import DataLoader

COLOURS = torch.randn(10, 3, 1, 1, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    """The small convolutional network of PyTorch's tutorial, with 62,006 parameters."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(400, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.conv1(x)), 2)
        x = nn.functional.max_pool2d(torch.relu(self.conv2(x)), 2)
        x = torch.relu(self.fc1(x.flatten(1)))
        return self.fc3(torch.relu(self.fc2(x)))


def images(seed: int, count: int):
    """Return images of ten classes, each of which has a colour."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (count,), generator=generator)
    noise = torch.randn(count, 3, 32, 32, generator=generator)
    return [
        {"img": img, "label": label}
        for img, label in zip(COLOURS[labels] + noise, labels, strict=True)
    ]


def load_data(partition_id: int, num_partitions: int, batch_size: int):
    """Return what one client has, four fifths of it for training."""
    partition = images(1 + partition_id, 40)
    trainloader = DataLoader(partition[:32], batch_size=batch_size, shuffle=True)
    return trainloader, DataLoader(partition[32:], batch_size=batch_size)


def load_centralized_dataset():
    """Return what the server has."""
    return DataLoader(images(0, 100), batch_size=128)


def train(net, trainloader, epochs, lr, device):
    """Train, and return the mean loss."""
    net.to(device)
    criterion = torch.nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    net.train()
    running_loss = 0.0
    for _ in range(epochs):
        for batch in trainloader:
            optimizer.zero_grad()
            loss = criterion(net(batch["img"].to(device)), batch["label"].to(device))
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
    return running_loss / (epochs * len(trainloader))


def test(net, testloader, device):
    """Return mean loss and accuracy."""
    net.to(device)
    criterion = torch.nn.CrossEntropyLoss()
    correct, loss = 0, 0.0
    with torch.no_grad():
        for batch in testloader:
            labels = batch["label"].to(device)
            outputs = net(batch["img"].to(device))
            loss += criterion(outputs, labels).item()
            correct += (outputs.argmax(1) == labels).sum().item()
    return loss / len(testloader), correct / len(testloader.dataset)
