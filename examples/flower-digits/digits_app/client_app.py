"""The client: a training function like any other, registered with `protect`."""

from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from digits_app import task
from skellam import SystemEntropy
from skellam.engines.flower import Limits, protect

app = ClientApp()


# A real SuperNode brings limits of its own; these are for simulated nodes.
@protect(app, entropy=SystemEntropy(), simulated=Limits.for_simulation())
def train(message: Message, context: Context) -> Message:
    """Train on what this node holds; what it returns stays on the node but for the noisy sum."""
    config = context.node_config
    x, y = task.examples_of(int(config["partition-id"]), int(config["num-partitions"]))
    trained = task.train(task.from_record(message.content["arrays"]), x, y)
    metrics = {"num-examples": len(y), "accuracy": task.accuracy(trained, x, y)}
    content = {"arrays": task.to_record(trained), "metrics": MetricRecord(metrics)}
    return Message(RecordDict(content), reply_to=message)
