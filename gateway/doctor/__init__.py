"""What is wrong with a gateway's machine, folder or settings, or soon will be, and what to do about it."""
