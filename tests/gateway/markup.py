"""What a page consists of, read as a browser reads it."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "link", "input", "img"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class Markup(HTMLParser):
    def __init__(self, body: bytes) -> None:
        super().__init__()
        self.elements: list[Element] = []
        self._open: list[Element] = []
        self.feed(body.decode())
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.elements.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element.pieces.append(data)

    def of(self, tag: str, **attributes: str) -> list[Element]:
        wanted = attributes.items()
        return [one for one in self.elements if one.tag == tag and wanted <= one.attributes.items()]

    def by_id(self, name: str) -> Element:
        (element,) = [one for one in self.elements if one.attributes.get("id") == name]
        return element

    @property
    def ids(self) -> list[str]:
        return [one.attributes["id"] for one in self.elements if "id" in one.attributes]
