"""Runs side by side: what differs in their configs, their curves, throughput and scores.

python -m utilities.compare RUN RUN… [--output page.html]
"""
