"""The pages of echo spaces for people: the form that makes a space, and the room."""
