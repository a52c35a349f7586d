"""The register of nodes: which there are by the word of operators, what they are called, and how their lives end."""
