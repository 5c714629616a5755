"""Data: from text to TFRecords, and from TFRecords to batches."""
