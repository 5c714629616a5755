"""Speed, memory and learning of this project compared with Hugging Face's, measured by commands anyone can run."""
