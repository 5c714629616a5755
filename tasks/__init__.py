"""One file a task: data, model, losses, metrics, evaluation and outputs."""
