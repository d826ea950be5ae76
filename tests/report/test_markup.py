from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from skellam.report.markup import tag

TEXT = st.text(st.characters(exclude_categories=["Cc", "Cs"]))


class Reader(HTMLParser):
    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.text = [], [], ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text += data


@given(TEXT, TEXT)
def test_whatever_text_goes_in_comes_out_as_text_and_nothing_else(inside, attribute):
    read = Reader(tag("p", inside, title=attribute))
    assert read.tags == ["p"]
    assert read.text == inside
    assert read.attributes == [("title", attribute)]


@given(TEXT)
def test_elements_nest_without_being_escaped_twice(text):
    read = Reader(tag("div", tag("b", text), text))
    assert read.tags == ["div", "b"]
    assert read.text == text + text


def test_names_of_attributes_are_those_of_html():
    assert tag("p", class_="a", stroke_width=0.5, id=None) == '<p class="a" stroke-width="0.5"></p>'
