"""What ``--plan`` prints, without TensorFlow: the config with its origins, sizes, operations, balance and duration."""
