"""A form that was filled in wrongly comes back as it was entered, with the error at its field."""

import re

import pytest

from sparrowmq import Admin, Client
from sparrowmq.console.console import Console
from sparrowmq.console.refill import refilled
from sparrowmq.testing.sim_cluster import SimCluster
from tests.admin.operator import numbered, send
from tests.console.visitor import Got, Visitor, as_visitor

FORMS = """
<details class="a"><summary>Search</summary>
<form method="get"><input name="name"></form></details>
<details><form method="post" action="/a%20b"><input type="hidden" name="id" value="1">
<input name="name" value="old"></form></details>
<details><form method="post" action="/a%20b"><input type="hidden" name="id" value="2">
<input type="hidden" name="token" value="x">
<input name="name" value="old"><input type="password" name="secret">
<select name="to"><option value="a" selected>A</option><option>b</option></select>
<textarea name="body">old</textarea></form></details>
"""


def test_only_the_form_that_was_sent_is_filled_and_opened() -> None:
    entered = {
        "id": ("2",),
        "name": ('"><b>',),
        "secret": ("s",),
        "to": ("b",),
        "body": ("</textarea><b>",),
    }
    html = refilled(FORMS, "/a b", entered, "name is <wrong>", "name")
    assert html is not None
    first, second = html.split('value="2"')
    assert first.count(" open>") == 1
    assert first.rindex(" open>") > first.index('value="1"')
    assert 'id="form-problem">name is &lt;wrong&gt;</p>' in first
    assert (
        'aria-invalid="true" aria-describedby="form-problem" autofocus value="&quot;&gt;&lt;b&gt;">'
        in second
    )
    assert '<input type="password" name="secret">' in second
    assert '<option value="a">A</option><option selected>b</option>' in second
    assert '<textarea name="body">&lt;/textarea&gt;&lt;b&gt;</textarea>' in second
    assert "<b>" not in html


def test_a_page_without_the_form_is_left_alone() -> None:
    assert refilled(FORMS, "/other", {}, "wrong") is None


@pytest.mark.parametrize(
    ("path", "fields", "page", "wrong", "words"),
    [
        ("/topics", {"name": "new", "queues": "9999"}, "Topics", "queues", "queues is '9999'"),
        ("/topics", {"name": "a b", "queues": "4"}, "Topics", "name", "a b"),
        ("/groups", {"name": "a b"}, "Groups", "name", "a b"),
        (
            "/groups/shipping/reset",
            {"topic": "orders", "to": "time", "time": "soon"},
            "Group shipping",
            "time",
            "soon",
        ),
        (
            "/groups/shipping/reset",
            {"topic": "orders", "to": "place", "place": ""},
            "Group shipping",
            "place",
            "broker-a/3/1841",
        ),
        ("/groups/shipping/update", {"retries": "x"}, "Group shipping", "retries", "retries is"),
        ("/groups/shipping/delete", {"typed": "x"}, "Group shipping", "typed", "type the name"),
        ("/groups/shipping/clone", {"target": "a b"}, "Group shipping", "target", "a b"),
        ("/topics/orders/update", {"queues": "x"}, "Topic orders", "queues", "must be a number"),
        ("/topics/orders/delete", {"typed": "x"}, "Topic orders", "typed", "type the name"),
    ],
)
def test_an_error_is_shown_at_the_field_of_the_wrong_value(
    path: str, fields: dict[str, str], page: str, wrong: str, words: str
) -> None:
    async def work(client: Client, console: Console, visitor: Visitor) -> Got:
        admin = Admin(client=client)
        await admin.create_topic("orders", queues=1)
        await admin.create_group("shipping")
        await send(client, *numbered("orders", 1))
        await admin.reset_offsets("shipping", "orders", "earliest")
        await visitor.get("/groups/shipping")
        return await visitor.post(path, fields)

    with SimCluster(seed=31).run() as sim:
        got = as_visitor(sim, work)
    assert got.status == 400
    assert re.search(rf"<title>{page} ·", got.html)
    alert = re.search(r'role="alert" id="form-problem">([^<]*)', got.html)
    assert alert is not None and words in alert[1].replace("&#x27;", "'")
    (field,) = re.findall(r'<[^>]*aria-describedby="form-problem"[^>]*>', got.html)
    assert f'name="{wrong}"' in field
    if fields[wrong]:
        assert f'value="{fields[wrong]}"' in field
    assert "data-live-page" not in got.html, "the address is that of the form"
