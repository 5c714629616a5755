"""Dense layers that store their non-zero blocks alone, and the products they are made of."""
