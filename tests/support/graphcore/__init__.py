"""A double of Graphcore's packages, from their published signatures."""
