"""The resumable input pipeline: TFRecords by random access, in an order computed from the position."""
