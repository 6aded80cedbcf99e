from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from playwright.sync_api import Page, Position, expect

from foreshock.storage.records import (
    CheckpointRecord,
    CheckpointState,
    Finding,
    Metric,
    Sample,
    SeriesKey,
    Status,
)
from foreshock.storage.store import Store

pytestmark = pytest.mark.slow

Open = Callable[..., Any]
Serve = Callable[..., tuple[Store, str]]
RUN = "llama-1b-fp8"
LOW = (0x44, 0x01, 0x54)
"""The colour of the lowest value: a dark purple; the highest is a bright yellow."""


def query(page: Page) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).query).items()}


def cell(page: Page, layer: int, step: int) -> Position:
    """Where a cell of the heatmap lies on its canvas; the steps shown go from 50 to 10,125."""
    expect(page.locator("#heatmap")).to_be_visible()
    box = page.locator("#heatmap").bounding_box()
    assert box is not None
    left, right, top, bottom = 56, box["width"] - 14, 4, box["height"] - 26
    x = left + (step - 50) / (10_125 - 50) * (right - left)
    return Position(x=x, y=top + (layer + 0.5) / 24 * (bottom - top))


def colours(page: Page, *places: Position) -> list[list[int]]:
    """Red, green and blue at each place of the heatmap."""
    found: list[list[int]] = page.evaluate(
        """(places) => {
            const canvas = document.getElementById('heatmap');
            const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
            const at = ({ x, y }) => 4 * (Math.round(y) * canvas.width + Math.round(x));
            return places.map((place) => Array.from(data.slice(at(place), at(place) + 3)));
        }""",
        places,
    )
    return found


def test_the_first_look_shows_the_collapse(open_page: Open, url: str) -> None:
    page = open_page(url).page
    expect(page.locator("#heatmap-title")).to_have_text("qk_first_order.effective_rank · qk")
    expect(page.locator("#lines-title")).to_have_text("Layer 3 · qk")
    expect(page.locator("#state-text")).to_have_text("watching")
    expect(page.locator("#last")).to_contain_text("step 10\u202f000")
    assert page.title() == f"{RUN} · Foreshock"
    collapsed, healthy = colours(page, cell(page, 3, 9_500), cell(page, 7, 9_500))
    assert max(abs(seen - low) for seen, low in zip(collapsed, LOW, strict=True)) < 25
    assert healthy[1] > 180


def test_findings_come_gravest_first_and_lead_to_their_cell(open_page: Open, url: str) -> None:
    page = open_page(url).page
    expect(page.locator(".badge")).to_have_text(["critical", "warning"])
    page.locator(".finding-open").last.click()
    expect(page.locator("#lines-reading")).to_contain_text("step 7\u202f500")
    assert query(page)["step"] == "7500"
    assert query(page)["layer"] == "3"


def test_a_click_on_a_cell_shows_its_layer_and_is_kept_in_the_address(open_page: Open, url: str) -> None:
    page = open_page(url).page
    page.locator("#heatmap").click(position=cell(page, 12, 6_000))
    expect(page.locator("#lines-title")).to_have_text("Layer 12 · qk")
    expect(page.locator("#lines-reading")).to_contain_text("step 6\u202f000")
    page.wait_for_url("**layer=12**")
    assert query(page) | {"run": RUN, "layer": "12", "step": "6000"} == query(page)
    page.reload()
    expect(page.locator("#lines-title")).to_have_text("Layer 12 · qk")
    expect(page.locator("#lines-reading")).to_contain_text("step 6\u202f000")


def test_hovering_tells_layer_step_and_value(open_page: Open, url: str) -> None:
    page = open_page(url).page
    page.locator("#heatmap").hover(position=cell(page, 3, 8_000))
    tooltip = page.locator("#tooltip")
    expect(tooltip).to_contain_text("layer 3 · step 8\u202f000")
    expect(tooltip).to_contain_text("fell to a third")
    page.locator("#heatmap").hover(position=cell(page, 10, 5_500))
    expect(tooltip).to_contain_text("no finite value")
    page.mouse.move(5, 5)
    expect(tooltip).to_be_hidden()


def test_the_heatmap_can_be_walked_with_the_keyboard(open_page: Open, url: str) -> None:
    page = open_page(url).page
    expect(page.locator("#lines-title")).to_have_text("Layer 3 · qk")
    page.locator("#heatmap").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowLeft"):
        page.keyboard.press(key)
    expect(page.locator("#lines-title")).to_have_text("Layer 5 · qk")
    expect(page.locator("#lines-reading")).to_contain_text("step 9\u202f750")
    expect(page.locator("#announce")).to_contain_text("layer 5 · step 9\u202f750")
    page.keyboard.press("Home")
    expect(page.locator("#lines-reading")).to_contain_text("step 500")
    for _ in range(30):
        page.keyboard.press("ArrowUp")
    expect(page.locator("#lines-title")).to_have_text("Layer 0 · qk")


def test_the_pickers_offer_only_what_there_is(open_page: Open, url: str) -> None:
    page = open_page(url).page
    page.locator("#metric").select_option("update.effective_rank")
    expect(page.locator("#heatmap-title")).to_have_text("update.effective_rank · q")
    expect(page.locator("#lines-key")).to_contain_text("whole matrix")
    expect(page.locator("#lines-key")).to_contain_text("12 heads")
    page.locator("#view").select_option("whole matrix")
    page.wait_for_url("**view=whole.median**")
    page.locator("#metric").select_option("update.relative_norm")
    expect(page.locator("#view option")).to_have_text(["whole matrix"])
    assert "training.loss" not in page.locator("#metric option").all_inner_texts()


def test_a_chart_can_be_read_and_the_loss_follows(open_page: Open, url: str) -> None:
    page = open_page(url).page
    expect(page.locator("#loss-card")).to_be_visible()
    page.locator("#lines").hover(position={"x": 700, "y": 120})
    reading = page.locator("#lines-reading")
    expect(reading).to_contain_text("median")
    expect(reading).to_contain_text("head.")
    step = reading.inner_text().split("  ·")[0]
    expect(page.locator("#loss-reading")).to_contain_text(step)


def test_doubtful_points_are_named(open_page: Open, url: str) -> None:
    page = open_page(f"{url}/?run={RUN}&metric=qk_first_order.effective_rank&layer=22").page
    expect(page.locator("#lines-title")).to_have_text("Layer 22 · qk")
    expect(page.locator("#lines-key")).to_contain_text("below resolution")


def test_the_ledger_says_what_became_of_each_checkpoint(open_page: Open, url: str) -> None:
    page = open_page(url).page
    expect(page.locator("#checkpoints summary")).to_contain_text("39 measured · 1 missed")
    page.locator("#checkpoints summary").click()
    row = page.locator("#checkpoints tr", has_text="4\u202f250")
    expect(row).to_contain_text("deleted before it was read")


def test_nothing_is_drawn_again_while_nothing_changes(open_page: Open, url: str) -> None:
    page = open_page(url).page
    expect(page.locator("#lines-title")).to_have_text("Layer 3 · qk")
    page.evaluate(
        """() => {
            const { prototype } = CanvasRenderingContext2D;
            const draw = prototype.putImageData;
            window.drawn = 0;
            prototype.putImageData = function (...given) { window.drawn += 1; draw.apply(this, given); };
        }"""
    )
    for _ in range(2):
        with page.expect_response("**/heatmap**", timeout=10_000) as response:
            pass
        assert response.value.status == 304
    assert page.evaluate("window.drawn") == 0


def test_it_fits_on_a_phone(open_page: Open, url: str) -> None:
    page = open_page(url, viewport={"width": 390, "height": 844}, has_touch=True).page
    expect(page.locator("#lines-title")).to_have_text("Layer 3 · qk")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_new_checkpoint_appears_by_itself(serve: Serve, open_page: Open) -> None:
    store, url = serve()
    page = open_page(url).page
    expect(page.locator("#empty-title")).to_have_text("No run yet")
    expect(page.locator("#empty-command")).to_contain_text("foreshock watch")
    store.register_metrics([Metric("router.conditioning", "")])
    run = store.ensure_run("fresh", "/checkpoints/fresh")
    expect(page.locator("#empty-text")).to_contain_text("watches /checkpoints/fresh", timeout=10_000)
    detail = {"run": "fresh", "interval_seconds": 60.0}
    store.set_status(Status("watch:fresh", datetime.now(UTC), True, detail))
    expect(page.locator("#empty-text")).to_contain_text("Watching /checkpoints/fresh", timeout=10_000)
    attempt = store.open_attempt(run.id, 100, "")
    sample = Sample(SeriesKey("router.conditioning", 0, "router", "w"), 100, 9.0)
    store.record_measurement(attempt.id, CheckpointRecord(1, 100, "/c", CheckpointState.MEASURED), [sample])
    expect(page.locator("#heatmap-title")).to_have_text("router.conditioning · router", timeout=10_000)
    store.open_attempt(run.id, 50, "the step went back")
    expect(page.locator("#attempt")).to_have_value("2", timeout=10_000)
    page.locator("#attempt").select_option("1")
    expect(page.locator("#lines-reading")).to_contain_text("matrix 9")


def test_the_page_asks_for_the_token_and_keeps_it_for_the_tab(
    serve: Serve, open_page: Open, store: Store
) -> None:
    token = "correct horse ünïcödé battery staple"
    _, url = serve(store, token=token)
    watched = open_page(url)
    page = watched.page
    form = page.locator("#token-form")
    expect(form).to_be_visible()
    expect(page.locator("#state-text")).to_have_text("locked")
    page.locator("#token").fill("wrong")
    page.locator("#token-form button").click()
    expect(page.locator("#token-problem")).to_have_text("That is not the token.")
    page.locator("#token").fill(token)
    page.locator("#token-form button").click()
    expect(page.locator("#lines-title")).to_have_text("Layer 3 · qk")
    expect(form).to_be_hidden()
    page.reload()
    expect(page.locator("#lines-title")).to_have_text("Layer 3 · qk")
    assert token not in page.url
    watched.trouble[:] = [each for each in watched.trouble if "status of 401" not in each]


HOSTILE = (
    "<img src=x onerror=alert(1)><script>alert(2)</script>\u202e\"' onmouseover=alert(3) {{7*7}} "
    "javascript:alert(4)"
)


METRIC = HOSTILE.replace("\u202e", "")
"""Metrics and roles are named by the program; that they too stay text costs nothing."""


def test_hostile_names_stay_text(serve: Serve, open_page: Open) -> None:
    store, url = serve()
    record_hostile(store)
    page = open_page(f"{url}/?run={quote(HOSTILE)}&layer={quote(HOSTILE)}").page
    expect(page.locator("#heatmap-title")).to_contain_text("<script>alert(2)</script>")
    expect(page.locator(".finding-message")).to_contain_text("<img src=x")
    page.locator("#checkpoints summary").click()
    expect(page.locator("#checkpoints td.reason")).to_contain_text("onmouseover")
    page.locator("#heatmap").hover(position={"x": 600, "y": 100})
    expect(page.locator("#tooltip")).to_contain_text("onerror")
    page.locator("#lines").hover(position={"x": 600, "y": 100})
    assert page.locator("img[src=x], main script").count() == 0
    assert page.title().startswith("<img")
    assert "\u202e" not in page.locator("body").inner_text()


def record_hostile(store: Store) -> None:
    """Every place that a name can reach holds a hostile one."""
    store.register_metrics([Metric(METRIC, HOSTILE, HOSTILE, source=HOSTILE)])
    run = store.ensure_run(HOSTILE, HOSTILE)
    attempt = store.open_attempt(run.id, 1, HOSTILE)
    samples = [
        Sample(SeriesKey(METRIC, 0, METRIC, HOSTILE, unit), 1, 1.0, None, HOSTILE) for unit in ("", HOSTILE)
    ]
    found = [Finding(HOSTILE, HOSTILE, 1, "critical", HOSTILE, 0, {HOSTILE: HOSTILE})]
    checkpoint = CheckpointRecord(1, 1, HOSTILE, CheckpointState.PARTIAL, HOSTILE, HOSTILE, HOSTILE)
    store.record_measurement(attempt.id, checkpoint, samples, found)
    detail = {"run": HOSTILE, "interval_seconds": 10.0, "last_error": HOSTILE}
    store.set_status(Status(HOSTILE, datetime.now(UTC), False, detail))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("light", {"color_scheme": "light"}),
        ("dark", {"color_scheme": "dark"}),
        ("phone", {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2}),
    ],
)
def test_screenshots_can_be_taken(
    open_page: Open, url: str, tmp_path: Path, name: str, options: dict[str, Any]
) -> None:
    page = open_page(url, **options).page
    expect(page.locator("#loss-reading")).to_contain_text("step")
    picture = page.screenshot(path=tmp_path / f"{name}.png", full_page=True)
    assert len(picture) > 20_000
