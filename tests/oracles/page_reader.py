"""A page as a browser's parser sees it: its elements, and their text."""

from html.parser import HTMLParser


class PageReader(HTMLParser):
    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.elements, self._stack, self._texts, self._parts = [], [], [], []
        self.feed(page)
        self.close()

    @property
    def text(self):
        return "".join(self._parts)

    def inside(self, name):
        """Return the text of every element of this name."""
        return ["".join(parts) for found, parts in self._texts if found == name]

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in {"meta", "link"}:
            self._stack.append((tag, []))

    def handle_endtag(self, tag):
        opened = self._stack.pop()
        assert opened[0] == tag, f"<{opened[0]}> is closed by </{tag}>"
        self._texts.append(opened)

    def handle_data(self, data):
        self._parts.append(data)
        for _, parts in self._stack:
            parts.append(data)
