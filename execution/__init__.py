"""The interface to the machine that trains, and its implementations for stock TensorFlow and for IPUs."""
