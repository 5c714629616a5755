"""Several processes of stock TensorFlow: membership, collectives, and the loss of a process."""
