"""The node side: its rules on a bench, its driver on a mock clock, its journal on a disk, its wire on a socket."""
