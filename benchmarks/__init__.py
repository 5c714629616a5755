"""Speed, memory and learning of this project beside Hugging Face's, measured by commands anyone can run."""
