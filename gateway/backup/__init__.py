"""Backups of a data folder: what belongs in one, how it is taken while calls run, and how a folder is made of one."""
