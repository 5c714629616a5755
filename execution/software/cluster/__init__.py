"""Several processes of stock TensorFlow: membership, collectives, and the detection of lost processes."""
