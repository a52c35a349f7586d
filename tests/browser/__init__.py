"""The pages in a real Chromium, against a gateway that is a process of its own."""
