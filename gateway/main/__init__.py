"""A gateway put together: its settings, its data folder, its clock and the composition root."""
