"""The resumable input pipeline: TFRecords read by random access, in an order that is a function of the position."""
