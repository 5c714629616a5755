"""The test suite; its folders mirror the product's."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]  # of the repository
