"""The client app: client metrics and client evaluation, as Flower's template has them."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from quickstart import task

app = ClientApp()


def prepared(message: Message, context: Context):
    """Return the model that came, its device, and this client's data."""
    model = task.Net()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    node, batch_size = context.node_config, context.run_config["batch-size"]
    loaders = task.load_data(node["partition-id"], node["num-partitions"], batch_size)
    return model, torch.device("cpu"), loaders


@app.train()
def train(message: Message, context: Context):
    model, device, (loader, _) = prepared(message, context)
    epochs, lr = context.run_config["local-epochs"], message.content["config"]["lr"]
    loss = task.train(model, loader, epochs, lr, device)
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(loader.dataset)})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context):
    model, device, (_, loader) = prepared(message, context)
    loss, accuracy = task.test(model, loader, device)
    metrics = {"eval_loss": loss, "eval_acc": accuracy, "num-examples": len(loader.dataset)}
    content = RecordDict({"metrics": MetricRecord(metrics)})
    return Message(content=content, reply_to=message)
