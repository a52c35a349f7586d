"""Variables of the environment that commands read. They are no settings of a gateway, which passes over them."""

TOKEN = "HELIOGRAPH_TOKEN"  # an agent's, for `call` and `watch`
OPERATOR_TOKEN = "HELIOGRAPH_OPERATOR_TOKEN"
SPACE = "HELIOGRAPH_SPACE"  # the link of an echo space
SPACE_CLAIM = "HELIOGRAPH_SPACE_CLAIM"  # its creator's
SPACE_PASSWORD = "HELIOGRAPH_SPACE_PASSWORD"  # of an instance, to create spaces there
URL = "HELIOGRAPH_URL"  # of an echo service, for `site` and `project`
BEARERS = ("HELIOGRAPH_API_BEARER_TOKEN", "API_BEARER_TOKEN")  # of its project API; a setting of a gateway too

FOR_COMMANDS = frozenset({TOKEN, OPERATOR_TOKEN, SPACE, SPACE_CLAIM, SPACE_PASSWORD, URL})
