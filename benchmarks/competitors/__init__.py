"""One module for each way to pre-train BERT; each offers ``prepare(job)``, see :mod:`benchmarks.jobs`."""
