"""What TensorFlow's code writes to standard error while it is being loaded, whatever its log level."""

LOADING = ("All log messages before absl", "oneDNN custom operations", "cuda drivers", "register cu")
