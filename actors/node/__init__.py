"""A node's session as the gateway sees it: the rules of device wire §2 to §7, and the actor that drives them."""
