"""The tools of an operator over MCP, as `project_tools.json` lists them: projects, their rooms and the files of sites.

They have no scopes: the project bearer opens all of them.
"""

from collections.abc import Mapping

from schemas.contract import Contract
from schemas.echo.tools import EchoTool, listed_in

PROJECT_TOOLS: Mapping[str, EchoTool] = {
    tool["name"]: EchoTool(tool["name"], tool, Contract(tool["inputSchema"]))
    for tool in listed_in("project_tools.json")
}
