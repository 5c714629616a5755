"""What training on IPUs needs besides Graphcore's packages; execution/graphcore.py joins the two."""
