"""The register of nodes: which there are by the word of operators, what they are called, and how each one's life ends."""
