import io

import numpy as np
import pytest
from PIL import Image

import skellam as sk
from oracles.browser import visit
from oracles.tiny_task import plan, task
from skellam import federated as fl
from skellam import report

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    fl.train(task(), plan(), aggregate=fl.secure(), entropy=sk.SystemEntropy(), folder=folder)
    return report.write(folder)


@pytest.mark.parametrize(("scheme", "darkest", "lightest"), [("light", 200, 256), ("dark", 0, 60)])
@pytest.mark.parametrize("width", [1200, 400])
def test_the_page_opens_in_chromium_in_either_scheme(page, scheme, darkest, lightest, width):
    seen = visit(page.as_uri(), scheme=scheme, width=width)
    assert seen.complaints == []
    assert [url for url in seen.requests if not url.startswith("data:")] == [page.as_uri()]
    picture = np.asarray(Image.open(io.BytesIO(seen.picture)).convert("RGB"))
    assert picture.shape[1] == width
    assert darkest <= np.median(picture) < lightest
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 100


def test_chromium_would_notice_a_request_and_an_error(tmp_path):
    path = tmp_path / "other.html"
    path.write_text("<img src='http://127.0.0.1:9/x.png'><script>null.x</script>")
    seen = visit(path.as_uri())
    assert "http://127.0.0.1:9/x.png" in seen.requests
    assert any("TypeError" in text for text in seen.complaints)


def test_the_policy_in_the_page_stops_what_would_leave_it(page, tmp_path):
    path = tmp_path / "tampered.html"
    extra = "<img src='http://127.0.0.1:9/x.png'><script>document.title='run'</script></main>"
    path.write_text(page.read_text().replace("</main>", extra))
    seen = visit(path.as_uri())
    assert len(seen.complaints) == 2
    assert all("Content Security Policy" in text for text in seen.complaints)
