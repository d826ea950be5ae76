"""Every block of the documentation runs; the site builds strictly and asks no other host.

``python`` and ``sh`` blocks run, in the order of their page, in one folder and one namespace. A
fence with a ``title`` does not run: the title says why, or names the test that runs it.
"""

import html
import json
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import pytest

from conftest import build_site
from oracles.browser import visit

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
ELSEWHERE = {"guide/flower.md"}
"""Pages whose blocks need a fleet; tests of that fleet run them."""
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
)
NOTEBOOK = {
    "nbformat": 4,
    "nbformat_minor": 5,
    "metadata": {"language_info": {"name": "python"}},
    "cells": [
        {"id": "a", "cell_type": "markdown", "metadata": {}, "source": "# Sums"},
        {
            "id": "b",
            "cell_type": "code",
            "metadata": {},
            "execution_count": 1,
            "source": "print(1 + 1)",
            "outputs": [
                {"output_type": "stream", "name": "stdout", "text": "two\n"},
                {"output_type": "display_data", "metadata": {}, "data": {"image/png": PIXEL}},
            ],
        },
    ],
}
FENCE = re.compile(r"^```(python|sh)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    language: str
    text: str
    line: int


def blocks(page):
    text = (DOCS / page).read_text()
    return [Block(m[1], m[2], text.count("\n", 0, m.start()) + 1) for m in FENCE.finditer(text)]


PAGES = sorted(
    page
    for page in (str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))
    if page not in ELSEWHERE and blocks(page)
)


@pytest.fixture
def shell(tmp_path_factory):
    """A folder in front of PATH with this environment's `skellam` and `python`."""
    folder = tmp_path_factory.mktemp("bin")
    code = "import sys; sys.argv[0] = 'skellam'; from skellam.cli import app; app()"
    for name, words in {"skellam": f'-c "{code}"', "python": ""}.items():
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        script.chmod(0o755)
    paths = {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "src")}
    return {**os.environ, **paths}


@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_a_page_run(page, tmp_path, monkeypatch, shell):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "flwr"))  # where a simulation keeps its keys
    namespace = {"__name__": "__docs__"}
    for block in blocks(page):
        where = f"{page}:{block.line}"
        if block.language == "python":
            exec(compile(block.text, where, "exec"), namespace)
            continue
        outcome = subprocess.run(
            ["bash", "-euc", block.text], env=shell, capture_output=True, text=True, check=False
        )
        assert outcome.returncode == 0, f"{where}\n{outcome.stdout}\n{outcome.stderr}"


def test_the_site_builds_strictly_and_has_every_page(site):
    for path in DOCS.rglob("*.md"):
        assert (site / path.relative_to(DOCS).with_suffix(".html")).exists(), path


def test_a_notebook_becomes_a_page_with_its_text_code_and_outputs(tmp_path):
    root = tmp_path / "project"
    for folder in ("docs", "examples"):
        (root / folder).mkdir(parents=True)
    (root / "docs" / "hooks").symlink_to(DOCS / "hooks")
    (root / "examples" / "sums.ipynb").write_text(json.dumps(NOTEBOOK))
    (root / "mkdocs.yml").write_text(
        "site_name: s\nhooks: [docs/hooks/notebooks.py]\nuse_directory_urls: false\n"
        "exclude_docs: '*.py'\nplugins: [search]\n"
    )
    site = build_site(tmp_path / "site", root=root)
    page = (site / "notebooks" / "sums.html").read_text()
    assert "<h1" in page
    assert "print(1 + 1)" in html.unescape(re.sub("<[^>]+>", "", page))
    assert "two" in page
    assert list((site / "notebooks" / "sums_files").glob("*.png"))
    index = json.loads((site / "search" / "search_index.json").read_text())
    assert any("notebooks/sums.html" in entry["location"] for entry in index["docs"])


def test_the_notebooks_of_the_examples_are_pages_with_results(site):
    notebooks = sorted(path.stem for path in (ROOT / "examples").glob("*.ipynb"))
    assert notebooks
    for name in notebooks:
        page = html.unescape((site / "notebooks" / f"{name}.html").read_text())
        assert "against the public, by best; assuming that" in page
        assert f"notebooks/{name}.html" in (site / "index.html").read_text()


def test_no_page_of_the_site_names_a_script_font_or_style_of_another_host(site):
    loads = re.compile(
        r"<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=[\"']?(?:https?:)?//[^>]*>"
    )
    for path in site.rglob("*.html"):
        foreign = [x for x in loads.findall(path.read_text()) if "canonical" not in x]
        assert not foreign, (path, foreign)


def test_every_page_is_in_the_navigation(site):
    shown = (site / "index.html").read_text()
    for path in DOCS.rglob("*.md"):
        assert str(path.relative_to(DOCS).with_suffix(".html")) in shown, path


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_site_opens_in_chromium_without_complaint_or_request_elsewhere(site, scheme):
    with served(site) as address:
        for page in ("index.html", "quickstart.html", "explain/architecture.html"):
            seen = visit(f"{address}/{page}", scheme=scheme)
            assert seen.complaints == []
            elsewhere = [url for url in seen.requests if not url.startswith((address, "data:"))]
            assert elsewhere == []


FOUND = """new Promise((done) => {
  const end = Date.now() + 60000;
  const look = () => {
    const links = [...document.querySelectorAll(".md-search-result__link")].map((a) => a.href);
    if (links.length || Date.now() > end) done(links); else setTimeout(look, 50);
  };
  look();
})"""
"""A script: the links that the page's search has found."""


@pytest.mark.slow
def test_the_search_finds_a_function_on_a_server_and_in_a_folder(site):
    with served(site) as address:
        for root in (address, site.as_uri()):
            seen = visit(f"{root}/index.html?q=noise_multiplier", script=FOUND)
            anchor = "#skellam.accounting.noise_multiplier"
            assert any(link.endswith(anchor) for link in seen.value), (root, seen)
            assert seen.complaints == []
            assert all(url.startswith((root, "data:", "about:")) for url in seen.requests)


@contextmanager
def served(folder):
    handler = partial(Quiet, directory=folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass
