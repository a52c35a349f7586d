"""The contract of echo spaces: names, errors, closes, envelopes, and the frames of a room. Pure."""
