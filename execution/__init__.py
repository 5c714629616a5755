"""The seam: what the application needs from a machine, and the machines that offer it."""
