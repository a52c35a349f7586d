"""What the scenarios of the conformance suite call, get and read: plain values, no behaviour."""

from typing import Any

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQIAAAAAAA=="


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def image() -> dict[str, Any]:
    return {"type": "image", "data": PNG, "mimeType": "image/png"}


def embedded(uri: str, mime_type: str, value: str) -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": mime_type, "text": value}}


# Tools that always say the same, by name: the content of their result.
CONSTANT_TOOLS: dict[str, list[dict[str, Any]]] = {
    "test_simple_text": [text("This is a simple text response for testing.")],
    "test_image_content": [image()],
    "test_audio_content": [{"type": "audio", "data": WAV, "mimeType": "audio/wav"}],
    "test_embedded_resource": [
        embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    ],
    "test_multiple_content_types": [
        text("Multiple content types test:"),
        image(),
        embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
    ],
    "json_schema_2020_12_tool": [text("The schema is what matters.")],
    "test_custom_header": [text("The header is what matters.")],
}

# Input schemas of tools that take something; all others take nothing.
INPUT_SCHEMAS: dict[str, dict[str, Any]] = {
    "test_sampling": {"type": "object", "properties": {"prompt": {"type": "string"}}, "required": ["prompt"]},
    "test_elicitation": {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
    "test_custom_header": {
        "type": "object",
        "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
        "required": ["region"],
    },
    "json_schema_2020_12_tool": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    },
}
NO_INPUT: dict[str, Any] = {"type": "object", "properties": {}}


def form(**properties: dict[str, Any]) -> dict[str, Any]:
    """The schema of an elicitation whose fields are all wanted."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def _titled(*names: str) -> list[dict[str, str]]:
    return [{"const": f"value{number}", "title": name} for number, name in enumerate(names, 1)]


_OPTIONS = ["option1", "option2", "option3"]
USER_FORM = form(
    username={"type": "string", "description": "User's response"},
    email={"type": "string", "description": "User's email address"},
)
DEFAULTS_FORM = form(
    name={"type": "string", "default": "John Doe"},
    age={"type": "integer", "default": 30},
    score={"type": "number", "default": 95.5},
    status={"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    verified={"type": "boolean", "default": True},
)
ENUMS_FORM = form(
    untitledSingle={"type": "string", "enum": _OPTIONS},
    titledSingle={"type": "string", "oneOf": _titled("First Option", "Second Option", "Third Option")},
    legacyEnum={
        "type": "string",
        "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"],
    },
    untitledMulti={"type": "array", "items": {"type": "string", "enum": _OPTIONS}},
    titledMulti={"type": "array", "items": {"anyOf": _titled("First Choice", "Second Choice", "Third Choice")}},
)


# ---- resources --------------------------------------------------------------------------------------------------

WATCHED = "test://watched-resource"
CONTENTS: dict[str, dict[str, Any]] = {
    "test://static-text": {"mimeType": "text/plain", "text": "This is the content of the static text resource."},
    "test://static-binary": {"mimeType": "image/png", "blob": PNG},
    WATCHED: {"mimeType": "text/plain", "text": "Watched resource content."},
}
RESOURCES: list[dict[str, Any]] = [
    {
        "uri": uri,
        "name": uri.removeprefix("test://"),
        "description": "For the conformance suite.",
        "mimeType": content["mimeType"],
    }
    for uri, content in CONTENTS.items()
]
TEMPLATE: dict[str, Any] = {
    "uriTemplate": "test://template/{id}/data",
    "name": "template",
    "description": "For the conformance suite.",
    "mimeType": "application/json",
}


# ---- prompts ----------------------------------------------------------------------------------------------------


def _prompt(name: str, *arguments: str) -> dict[str, Any]:
    return {
        "name": name,
        "description": "For the conformance suite.",
        "arguments": [{"name": argument, "required": True} for argument in arguments],
    }


PROMPTS: list[dict[str, Any]] = [
    _prompt("test_simple_prompt"),
    _prompt("test_prompt_with_arguments", "arg1", "arg2"),
    _prompt("test_prompt_with_embedded_resource", "resourceUri"),
    _prompt("test_prompt_with_image"),
    _prompt("test_input_required_result_prompt"),
]
