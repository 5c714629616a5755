"""Extensions of Keras that do not depend on BERT."""
