"""Replicas as processes: who they are, how they reach and agree with one another, and what happens when one is lost."""
