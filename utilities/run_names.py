"""The names of files in the folder of a run, which are part of what users and other programs rely on."""

METRICS, SCORES = "metrics.jsonl", "scores.json"
RESOLVED, DATASET = "resolved_config.json", "dataset.json"
LOG = "train.log"
