"""TensorFlow Privacy's query chained with the rotation and rounding that it leaves to others.

Runs under an interpreter of its own (see `bench_codec`) and prints the least CPU seconds for 2**20.
"""

from __future__ import annotations

import time

import tensorflow as tf
from tensorflow_privacy.privacy.dp_query.distributed_skellam_query import DistributedSkellamSumQuery

SIZE, SCALE, CLIP, BITS, DEVIATION = 1 << 20, 1000.0, 1.0, 16, 10.0


@tf.function
def encode(x: tf.Tensor) -> tf.Tensor:
    y = tf.clip_by_norm(x, CLIP) * SCALE
    y *= tf.cast(2 * tf.random.uniform([SIZE], maxval=2, dtype=tf.int32) - 1, tf.float32)
    y = hadamard(y)
    low = tf.floor(y)
    z = tf.cast(low + tf.cast(tf.random.uniform([SIZE]) < y - low, tf.float32), tf.int32)
    query = DistributedSkellamSumQuery(1e9, 1e9, DEVIATION)
    z = query.preprocess_record(query.derive_sample_params(query.initial_global_state()), z)
    return tf.math.floormod(z, 1 << BITS)


def hadamard(y: tf.Tensor) -> tf.Tensor:
    h = 1
    while h < SIZE:
        pairs = tf.reshape(y, [-1, 2, h])
        y = tf.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1)
        h *= 2
    return tf.reshape(y, [-1]) / SIZE**0.5


def main() -> None:
    x = tf.random.normal([SIZE])
    encode(x)
    seconds = []
    for _ in range(5):
        start = time.process_time()
        encode(x).numpy()
        seconds.append(time.process_time() - start)
    print(min(seconds))


if __name__ == "__main__":
    main()
