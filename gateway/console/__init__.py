"""The console: the fleet in a browser, for operators. Sign-in, the calls of its pages, and the pages."""
