"""The console in a real browser: every page, forms, keyboard, phone, dark, hostile content."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.console.browser.conftest import SHOTS, tab_of
from tests.console.test_many_names import EVIL, HOSTILE_PAGES

PAGES = {
    "overview": "/",
    "topics": "/topics",
    "topic": "/topics/orders",
    "topic-senders": "/topics/orders/senders",
    "topic-messages": "/topics/orders/messages",
    "groups": "/groups",
    "group": "/groups/billing",
    "messages": "/messages?topic=orders&key=o-3",
    "rebalance": "/groups/billing/rebalance",
    "simulation": "/groups/billing/rebalance/simulate?members=3&queues=8&events=join+kill",
    "dead-letters": "/dead-letters",
    "dead-letters-group": "/dead-letters/invoicing",
    "waiting": "/waiting",
    "timers": "/waiting/timers",
    "transactions": "/waiting/transactions",
    "name-servers": "/nameservers",
    "traffic": "/traffic",
    "clients": "/clients",
    "brokers": "/brokers",
    "broker": "/brokers/broker-a",
    "audit": "/audit",
    "search": "/search?q=ord",
    "live-group": "/groups/shipping",
    "counted-group": "/groups/shipping?matching=1",
    "live-rebalance": "/groups/shipping/rebalance",
    "not-found": "/topics/none",
    "wrong-time": "/topics/orders/messages?since=yesterday",
}


# ---- pages without their own address: how to get there


def _message(tab: Any) -> None:
    tab.goto("/messages?topic=orders&key=o-3")
    tab.locator("td.when a").first.click()


def _life(tab: Any) -> None:
    tab.goto("/messages?topic=invoices&key=invoice-1")
    tab.locator("td.when a").first.click()


def _dead_letter(tab: Any) -> None:
    _life(tab)
    tab.locator(".life").get_by_role("link", name="dead").click()


def _member(tab: Any) -> None:
    tab.goto("/groups/shipping")
    tab.locator("#live-members").get_by_role("link").first.click()


def _reset(tab: Any) -> None:
    tab.goto("/groups/billing")
    tab.get_by_text("Reset offsets").click()
    tab.locator("#reset").get_by_label("Topic").select_option("orders")
    tab.locator("#reset").get_by_role("button", name="Preview").click()


def _undo(tab: Any) -> None:
    _reset(tab)
    tab.get_by_role("button", name="Move the group").click()
    tab.get_by_role("button", name="Undo the reset").click()


def _resend(tab: Any) -> None:
    tab.goto("/dead-letters/invoicing")
    tab.get_by_label("Select all").check()
    tab.get_by_role("button", name="Preview").click()


def _change(tab: Any) -> None:
    tab.goto("/topics/orders")
    tab.get_by_text("Change settings").click()
    tab.get_by_label("Queues on each broker").fill("3")
    tab.get_by_role("button", name="Preview").click()


def _topic_settings(tab: Any) -> None:
    tab.goto("/topics/orders")
    tab.get_by_text("Change settings").click()


def _group_settings(tab: Any) -> None:
    tab.goto("/groups/billing")
    tab.get_by_text("Change settings").click()


def _group_change(tab: Any) -> None:
    _group_settings(tab)
    tab.get_by_label("Retries", exact=True).fill("3")
    tab.get_by_label("May broadcast").select_option("no")
    tab.get_by_label("Attributes").fill("sparrowmq.quota.messages=100")
    tab.locator("form[action$='/update']").get_by_role("button", name="Preview").click()


def _clone_to_itself(tab: Any) -> None:
    tab.goto("/groups/billing")
    tab.get_by_text("(clone)").click()
    tab.get_by_label("Other group").fill("billing")
    tab.locator("#clone").get_by_role("button", name="Preview").click()


WAYS: dict[str, tuple[Callable[[Any], None], str]] = {
    "message": (_message, "Message "),
    "message-life": (_life, "Message "),
    "dead-letter": (_dead_letter, "Message "),
    "member": (_member, "Member "),
    "reset-preview": (_reset, "Reset billing"),
    "undo-preview": (_undo, "Undo the reset of billing"),
    "resend-preview": (_resend, "again"),
    "change-preview": (_change, "orders"),
    "topic-settings": (_topic_settings, "orders"),
    "group-settings": (_group_settings, "billing"),
    "group-change-preview": (_group_change, "Change group billing"),
    "refused-form": (_clone_to_itself, ""),
}
"""And a part of the heading there."""


def no_sideways_scrolling(page: Any) -> bool:
    return bool(
        page.evaluate(
            "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        )
    )


def cut_tables(page: Any) -> list[str]:
    """Captions of the tables that are wider than their card, so that the last columns are cut."""
    found: list[str] = page.evaluate(
        "[...document.querySelectorAll('.scroll')]"
        ".filter(each => each.scrollWidth > each.clientWidth && each.querySelector('caption'))"
        ".map(each => each.querySelector('caption').textContent)"
    )
    return found


def squeezed_names(page: Any) -> list[str]:
    """Names at the beginning of rows that are broken into more than three lines, and what is wider
    than its column or fills it to the next one."""
    found: list[str] = page.evaluate(
        "[...document.querySelectorAll('tbody th, .progress td')]"
        ".filter(each => each.matches('th') ? each.offsetHeight > 100 && each.offsetWidth < 100"
        " : each.querySelector('time')?.getBoundingClientRect().right"
        " > each.getBoundingClientRect().right - 8)"
        ".map(each => each.innerText)"
    )
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "column"),
    [
        ("/topics", "Messages"),
        ("/groups", "Unread"),
        ("/groups/billing", "Waits for"),
        ("/topics/orders", "Last stored"),
        ("/topics/orders/messages", "Body"),
        ("/dead-letters/invoicing", "Body"),
        ("/messages?topic=orders&key=o-3", "Body"),
        ("/brokers/broker-a", "May change"),
        ("/clients", "Groups"),
        ("/", "State"),
        ("/audit", "Result"),
    ],
)
def test_a_phone_shows_the_important_columns_without_scrolling(
    path: str, column: str, browser: Any, address: str
) -> None:
    with tab_of(browser, viewport={"width": 390, "height": 800}) as tab:
        if path == "/audit":  # its list needs a change
            tab.goto(f"{address}/groups/billing")
            tab.get_by_text("Change settings").click()
            tab.get_by_label("Retries", exact=True).fill("17")
            tab.locator("form[action$='/update']").get_by_role("button", name="Preview").click()
            with tab.expect_navigation():
                tab.get_by_role("button", name="Change it").click()
        tab.goto(address + path)
        box = tab.get_by_role("columnheader", name=column).first.bounding_box()
    assert box["x"] + box["width"] < 390


@pytest.mark.slow
def test_a_table_that_goes_on_has_a_shadow_at_that_side(browser: Any, address: str) -> None:
    """Shadows stay at the sides, and covers of them move with the table."""
    with tab_of(browser, viewport={"width": 320, "height": 800}) as tab:
        tab.goto(f"{address}/groups/shipping/rebalance")
        table = tab.get_by_role("region", name="Moves", exact=True)
        assert table.evaluate("each => each.scrollWidth > each.clientWidth")
        attachments = table.evaluate("each => getComputedStyle(each).backgroundAttachment")
    assert attachments == "local, local, scroll, scroll"


def test_the_overview_shows_the_broker(page: Any, address: str) -> None:
    page.goto(address)
    assert page.get_by_role("heading", level=1).inner_text() == "Overview"
    assert page.get_by_role("link", name="broker-a").is_visible()
    page.get_by_role("link", name="Topics").click()
    page.get_by_role("link", name="orders").click()
    assert page.get_by_role("heading", level=1).inner_text() == "Topic orders"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [("light", 1280, "light"), ("dark", 1280, "dark"), ("narrow", 320, "light")],
)
def test_every_page_fits_in_light_dark_and_on_a_phone(
    name: str, width: int, scheme: str, browser: Any, address: str, guarded: str
) -> None:
    found: list[str] = []

    def look(tab: Any, title: str) -> None:
        tab.wait_for_load_state()  # after a click it may have begun only
        tab.screenshot(path=SHOTS / f"{title}-{name}.png", full_page=True)
        if not no_sideways_scrolling(tab):
            found.append(f"{title} is too wide")
        if width > 1000:
            found.extend(f"{title} cuts {each}" for each in cut_tables(tab))
        found.extend(f"{title} squeezes {each}" for each in squeezed_names(tab))
        assert tab.get_by_role("heading", level=1).count() == 1, title

    settings = {"viewport": {"width": width, "height": 800}, "color_scheme": scheme}
    with tab_of(browser, base_url=address, **settings) as tab:
        for title, path in PAGES.items():
            tab.goto(path)
            look(tab, title)
        for title, (way, heading) in WAYS.items():
            way(tab)
            assert heading in tab.get_by_role("heading", level=1).inner_text()
            look(tab, title)
        background = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    with tab_of(browser, **settings) as tab:
        tab.goto(f"{guarded}/login")
        look(tab, "login")
    assert found == []
    assert background == ("rgb(20, 24, 27)" if scheme == "dark" else "rgb(246, 247, 248)")


def test_a_message_is_found_and_hostile_content_stays_text(page: Any, address: str) -> None:
    page.goto(f"{address}/messages")
    page.get_by_label("Topic").last.fill("orders")
    page.get_by_label("Key", exact=True).fill("o-3")
    page.get_by_role("button", name="Search").last.click()
    page.locator("td.when a").first.click()
    assert '"order": "o-3"' in page.locator("pre.body").inner_text()
    page.get_by_role("link", name="hex").click()
    assert "6f 2d 33" in page.locator("pre.body").inner_text()
    page.goto(f"{address}/topics/orders/messages?tag=%3Cimg/src=x/onerror=alert(1)%3E")
    page.locator("td.when a").first.click()
    assert page.locator("pre.body").inner_text() == "<img/src=x/onerror=alert(1)>"
    assert page.locator("main img").count() == 0


@pytest.mark.parametrize("path", HOSTILE_PAGES.values(), ids=HOSTILE_PAGES)
def test_hostile_names_stay_text(path: str, page: Any, hostile: str) -> None:
    page.goto(hostile + path)
    assert page.get_by_text(EVIL).count() > 0
    assert page.locator("main img").count() == 0


@pytest.mark.parametrize(
    ("script", "heard"),
    [
        ("document.body.innerHTML = '<p style=\"color: red\">'", "Content Security Policy"),
        ("setTimeout(() => { throw new Error('planted') })", "planted"),
        ("setTimeout(() => alert('planted'))", "dialog planted"),
    ],
)
def test_what_a_browser_complains_about_fails_a_test(
    script: str, heard: str, browser: Any, address: str
) -> None:
    with pytest.raises(AssertionError, match=heard), tab_of(browser) as tab:
        tab.goto(f"{address}/healthz")
        tab.goto(f"{address}/audit")
        tab.evaluate(f"() => {{ {script} }}")
        tab.goto(f"{address}/audit")


@pytest.mark.slow
def test_a_group_is_reset_and_the_reset_is_undone(page: Any, address: str) -> None:
    page.goto(f"{address}/groups/billing")
    page.get_by_text("Reset offsets").click()
    page.locator("#reset").get_by_label("Topic").select_option("orders")
    page.locator("#reset").get_by_role("button", name="Preview").click()
    assert "Repeated" in page.locator("dl.figures").inner_text()
    page.get_by_role("button", name="Move the group").click()
    assert "was moved in" in page.get_by_role("status").first.inner_text()
    page.get_by_role("button", name="Undo the reset").click()
    page.get_by_role("button", name="Move the group").click()
    assert "was undone" in page.get_by_role("status").first.inner_text()
    page.goto(f"{address}/audit")
    assert page.get_by_role("rowheader", name="undo reset").is_visible()


@pytest.mark.slow
def test_a_dead_letter_is_selected_previewed_and_sent_again(page: Any, address: str) -> None:
    page.goto(f"{address}/dead-letters")
    page.get_by_role("link", name="invoicing").click()
    row = page.get_by_role("row", name="invoice-2")
    row.get_by_role("checkbox").check()
    page.get_by_label("Send the selected ones to").select_option("the group that failed")
    page.get_by_role("button", name="Preview").click()
    figures = page.locator("dl.figures").inner_text()
    assert "Would be sent" in figures and "1" in figures.split()
    assert page.get_by_role("row", name="invoice-1").count() == 0, "the other one stays"
    page.get_by_role("button", name="Send them").click()
    assert "Dead letters of invoicing: 1 sent." in page.get_by_role("status").first.inner_text()
    page.goto(f"{address}/audit")
    assert page.get_by_role("rowheader", name="resend dead letters").first.is_visible()
    page.goto(f"{address}/dead-letters/invoicing")
    page.get_by_label("Select all").check()
    page.get_by_role("button", name="Preview").click()
    assert "Sent before" in page.locator("dl.figures").inner_text()


@pytest.mark.slow
def test_pages_change_by_themselves_and_can_be_paused(page: Any, address: str) -> None:
    page.goto(f"{address}/topics")
    shown = page.locator("#live-asof time").inner_text()
    page.locator(f"#live-asof time:not(:text-is('{shown}'))").wait_for()
    page.get_by_role("button", name="Pause live updates").click()
    assert page.get_by_role("button", name="Resume live updates").is_visible()


COUNTS_UPDATES = """
    const Plain = window.EventSource;
    window.EventSource = class extends Plain {
      constructor(address) {
        super(address);
        this.addEventListener("fragment", ({ data }) => {
          if (JSON.parse(data).id !== "asof") return;
          const { dataset } = document.documentElement;
          dataset.updates = Number(dataset.updates || 0) + 1;
          dataset["update" + dataset.updates] = "";
        });
      }
    };
"""
"""How often the server has sent the part with the time, which is always another."""


def await_updates(page: Any, count: int) -> None:
    """Wait until the server has sent that many more."""
    came = "Number(document.documentElement.dataset.updates || 0)"
    page.locator(f"html[data-update{page.evaluate(came) + count}]").wait_for(state="attached")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hold", "release"),
    [
        (
            "getSelection().selectAllChildren(document.querySelector('#live-asof time'))",
            "getSelection().removeAllRanges()",
        ),
        (
            "document.querySelector('#live-asof').append(document.createElement('button')),"
            " document.querySelector('#live-asof button').focus()",
            "document.activeElement.blur()",
        ),
    ],
    ids=["a selection", "the focus"],
)
def test_a_part_with_the_focus_or_a_selection_is_updated_when_that_ends(
    hold: str, release: str, page: Any, address: str
) -> None:
    page.add_init_script(COUNTS_UPDATES)
    page.goto(f"{address}/brokers")
    await_updates(page, 1)
    page.evaluate(f"() => {{ {hold} }}")
    page.evaluate("() => { document.querySelector('#live-asof time').id = 'kept' }")
    await_updates(page, 2)
    assert page.locator("#kept").count() == 1, "the part is still the same"
    page.evaluate(f"() => {{ {release} }}")
    page.locator("#kept").wait_for(state="detached")


@pytest.mark.slow
def test_a_link_keeps_the_focus_when_its_part_is_updated(page: Any, address: str) -> None:
    page.goto(f"{address}/groups/shipping")
    link = "#live-members a"
    page.locator(link).first.focus()
    page.evaluate(f"() => {{ document.querySelector('{link}').id = 'former' }}")
    for _ in range(2):  # after a pause all parts are sent again
        page.evaluate("() => document.querySelector('[data-pause]').click()")
    page.locator("#former").wait_for(state="detached")
    assert page.evaluate(f"document.activeElement === document.querySelector('{link}')")


@pytest.mark.slow
def test_a_console_that_has_no_stream_left_is_asked_again(page: Any, address: str) -> None:
    page.add_init_script(COUNTS_UPDATES)
    asked: list[str] = []

    def answer(route: Any) -> None:
        asked.append(route.request.url)
        if len(asked) == 1:
            route.fulfill(status=503, body="too many streams")
        else:
            route.continue_()

    page.route("**/live?*", answer)
    page.goto(f"{address}/brokers")
    await_updates(page, 1)
    assert len(asked) == 2


@pytest.mark.slow
def test_the_keyboard_reaches_everything(page: Any, address: str) -> None:
    page.goto(address)
    page.keyboard.press("Tab")
    assert page.locator(":focus").inner_text() == "Skip to the content"
    page.keyboard.press("Enter")
    page.keyboard.press("/")
    assert page.locator(":focus").get_attribute("id") == "q"
    page.keyboard.type("orders")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Topic orders").wait_for()
    page.locator("summary", has_text="Change settings").focus()
    page.keyboard.press("Enter")
    assert page.get_by_label("Queues on each broker").is_visible()


def tab_to(page: Any, text: str) -> None:
    """Press Tab until an element with this text has the focus."""
    shown = "(document.activeElement.innerText || document.activeElement.id || '').trim()"
    passed = []
    for _ in range(100):
        page.keyboard.press("Tab")
        passed.append(page.evaluate(shown))
        if passed[-1] == text:
            return
    pytest.fail(f"Tab does not reach {text!r}: {passed}")


@pytest.mark.slow
def test_a_group_is_reset_without_a_mouse(page: Any, address: str) -> None:
    page.goto(f"{address}/groups/billing")
    page.get_by_role("button", name="Pause live updates").wait_for()
    tab_to(page, "Reset offsets")
    page.keyboard.press("Enter")
    tab_to(page, "Preview")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Reset billing").wait_for()
    tab_to(page, "Move the group")
    page.keyboard.press("Enter")
    page.get_by_text("was moved in").wait_for()


@pytest.mark.slow
def test_without_a_script_pages_and_forms_work(browser: Any, address: str) -> None:
    with tab_of(browser, java_script_enabled=False) as tab:
        tab.goto(f"{address}/groups?match=bill*")
        tab.get_by_role("link", name="billing").click()
        tab.get_by_label("Colours").select_option("dark")
        tab.get_by_role("button", name="Apply").click()
        assert tab.locator("html").get_attribute("data-theme") == "dark"


@pytest.mark.slow
def test_a_login_is_needed_where_there_are_users(page: Any, guarded: str) -> None:
    page.goto(f"{guarded}/groups/billing")
    page.get_by_label("Name").fill("ada")
    page.get_by_label("Password").fill("wrong horse")
    page.get_by_role("button", name="Log in").click()
    assert "wrong" in page.get_by_role("alert").inner_text()
    page.get_by_label("Name").fill("ada")
    page.get_by_label("Password").fill("correct horse")
    page.get_by_role("button", name="Log in").click()
    assert page.get_by_role("heading", level=1).inner_text() == "Group billing"
    assert page.get_by_text("Reset offsets").count() == 0, "a reader"
    page.get_by_role("button", name="Log out").click()
    page.goto(f"{guarded}/groups/billing")
    assert "/login" in page.url


@pytest.mark.slow
def test_a_form_from_another_site_changes_nothing(page: Any, address: str) -> None:
    page.goto(f"{address}/topics")
    port = address.rsplit(":", 1)[1]
    page.route(
        "http://evil.example/",
        lambda route: route.fulfill(
            content_type="text/html",
            body=f'<form method="post" action="http://127.0.0.1:{port}/topics">'
            '<input name="name" value="forged"><input name="queues" value="1">'
            '<input name="token" value="x"><button>Win</button></form>',
        ),
    )
    page.goto("http://evil.example/")
    page.get_by_role("button", name="Win").click()
    page.get_by_text("refused").wait_for()
    assert "another site (Origin)" in page.content()
