"""Classification of texts: GLUE, CLUE and users' own files, from the files to features, scores and predictions."""
