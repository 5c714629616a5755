"""The run configuration: schema, files, flags, rules and plan. Nothing here imports TensorFlow."""
