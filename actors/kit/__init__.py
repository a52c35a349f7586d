"""The node conformance kit (`heliograph node check`): a gateway that tries each rule of the device wire on one node.

    steps          what a check asks for and what it is told: the language between checks and whatever plays them
    gateway_rules  the gateway's part of a session, as checks play it; `hearing_rules` is what it hears in any of them
    *_checks       the checks, each a small script; `table` has them all in order
    player         plays scripts on real connections (trio); tests play them on a clock of their own

A check is a generator: it yields a step, is sent what happened, and ends. It reads no clock and holds no socket, so
that the same check runs on a device on the network and, in no time, on a node made of pure rules.
"""
