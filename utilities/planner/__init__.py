"""Will it fit, how well is it balanced, how long will it take: estimates of a run, made without TensorFlow."""
