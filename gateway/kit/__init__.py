"""What the conformance kit for nodes needs of the outside: a listener, a folder for the node, its process."""
