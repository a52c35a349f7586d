"""The agent that runs on a device: it dials a gateway, announces what the device can do, and does it at most once.

`device_rules` is what a node may do and when, `journal` what it must remember, `agent` the driver that connects the
two to a wire, a clock and the handlers. The mock fleet and a real device are this code with different samplers.
"""
