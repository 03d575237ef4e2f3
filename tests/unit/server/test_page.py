"""The page's files, and the heat of the tree that it draws. What the page does: tests/e2e/test_page.py."""

import re
from importlib import resources

import httpx2 as httpx
import pytest

from medusakit.server.heat import MAX_DEPTH, MAX_PENDING, TOLD, Heat
from medusakit.tree.topology import Topology
from page_fakes import page_service
from server_fakes import listening, scripted, service_of

FILES = {file.name: file.read_text("utf-8") for file in resources.files("medusakit.server").joinpath("page").iterdir()}
LINKS = re.compile(r'(?:href|src)="(page/[^"]+)"|from "\./([^"]+)"')


@pytest.fixture(scope="module")
def client():
    service, scheduler = service_of(scripted("abc "), keys=("secret",))
    with listening(service) as url, httpx.Client(base_url=url) as client:
        yield client
    scheduler.close()


def test_the_page_and_all_that_it_names_are_served_without_a_key(client):
    page = client.get("/")
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    names = {(a or f"page/{b}") for text in FILES.values() for a, b in LINKS.findall(text)}
    assert names >= {"page/app.js", "page/api.js", "page/page.css", "page/mark.svg", "page/theme.js"}
    assert {name.removeprefix("page/") for name in names} == set(FILES) - {"index.html", "docs.html"}
    for name in names:
        part = client.get(f"/{name}")
        assert (part.status_code, part.text) == (200, FILES[name.removeprefix("page/")])


def test_the_browser_is_told_to_ask_nobody_else(client):
    rules = dict(rule.split(" ", 1) for rule in client.get("/").headers["content-security-policy"].split("; "))
    assert set(rules.values()) == {"'none'", "'self'"}
    assert rules["default-src"] == "'none'"
    urls = [url for text in FILES.values() for url in re.findall(r"\w+://[^\s\"']+", text)]
    assert set(urls) == {"http://www.w3.org/2000/svg"}  # a name, not an address
    for name in ("index.html", "docs.html"):
        assert not re.search(r"\sstyle=|\son\w+=", FILES[name])  # which the rules would block


def test_the_api_page_is_ours_and_under_the_same_rules(client):
    page = client.get("/docs")
    assert (page.status_code, page.text) == (200, FILES["docs.html"])
    assert page.headers["content-security-policy"] == client.get("/").headers["content-security-policy"]
    assert client.get("/redoc").status_code == 404 and client.get("/openapi.json").status_code == 200


@pytest.mark.parametrize("name", ["heat.py", "../heat.py", "..%2fheat.py", "", "app.js.map"])
def test_nothing_else_is_served_from_there(client, name):
    assert client.get(f"/page/{name}").status_code == 404


def test_heat_counts_offers_and_acceptances_by_place():
    heat, tree = Heat(), Topology.from_parents([-1, 0, 0, 1])
    heat.add(tree, (0, 1, 3))
    heat.add(tree, (0, 2))
    heat.add(Topology.from_parents([-1, 0]), (0,))
    assert heat.told() == [
        {"path": [0], "offered": 3, "accepted": 1},
        {"path": [1], "offered": 2, "accepted": 1},
        {"path": [0, 0], "offered": 2, "accepted": 1},
    ]
    heat.clear()
    assert heat.told() == []


def test_heat_that_nobody_looks_at_keeps_the_last_trees():
    heat = Heat()
    for step in range(MAX_PENDING + 5):
        heat.add(Topology.chain(1), (0, 1) if step < 5 else (0,))
    assert heat.told() == [{"path": [0], "offered": MAX_PENDING, "accepted": 0}]


def test_heat_is_bounded_and_tells_parents_first():
    heat = Heat()
    for width in range(1, 800):
        heat.add(Topology.dense([width]), (0,))
    heat.add(Topology.chain(40), (0,))
    told = [tuple(place["path"]) for place in heat.told()]
    assert len(told) == TOLD and max(map(len, told)) <= MAX_DEPTH
    assert all(path[:-1] in told[:place] for place, path in enumerate(told) if len(path) > 1)


def test_the_state_has_the_tree_of_what_was_decoded():
    with page_service(0.0) as service, listening(service) as url, httpx.Client(base_url=url) as client:
        asked = {"model": "toy", "prompt": "a b", "max_tokens": 60}
        assert client.post("/v1/completions", json=asked).status_code == 200
        tree = client.get("/v1/state").json()["tree"]
    first = next(place for place in tree if place["path"] == [0])
    assert 0 < first["accepted"] < first["offered"]
    assert {tuple(place["path"]) for place in tree} == set(Topology.dense([3, 2, 2, 1]).rank_paths[1:])
