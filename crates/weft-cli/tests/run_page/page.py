"""The page of a run in a headless Chromium without network: page.py FILE FOLDER. Checks that its pictures are drawn, that
they zoom and name the place under the pointer, and writes screenshots to the folder."""

import json
import sys
from pathlib import Path

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By

sys.path.insert(0, str(Path(__file__).parents[1]))

from chromium import Chromium, say  # noqa: E402

page, folder = Path(sys.argv[1]).resolve().as_uri(), sys.argv[2]
browser = Chromium(folder, 1200, 1500)
driver, until, picture = browser.driver, browser.until, browser.picture


def text(selector):
    return driver.find_element(By.CSS_SELECTOR, selector).text


def canvas(heading):
    """Returns the canvas below the heading of a plot, scrolled into view."""
    return driver.execute_script("""
        const heading = [...document.querySelectorAll(".timeline h3")].find((it) => it.textContent.startsWith(arguments[0]));
        let it = heading;
        while (it.tagName !== "CANVAS") it = it.nextElementSibling;
        it.scrollIntoView({ block: "center" });
        return it;
    """, heading)


def colours(it):
    """Returns the number of pixels of each colour in the plot of a canvas."""
    return driver.execute_script("""
        const it = arguments[0], ratio = devicePixelRatio;
        const [left, top, wide, high] = it.dataset.plot.split(" ").map((value) => Math.round(value * ratio));
        // A copy is read: Chromium warns of canvases that are read again and again.
        const copy = Object.assign(document.createElement("canvas"), { width: it.width, height: it.height });
        const ink = copy.getContext("2d", { willReadFrequently: true });
        ink.drawImage(it, 0, 0);
        const { data } = ink.getImageData(left, top, wide, high), counts = {};
        for (let at = 0; at < data.length; at += 4) {
            const colour = data.slice(at, at + 3).join(" ");
            counts[colour] = (counts[colour] ?? 0) + 1;
        }
        return counts;
    """, it)


def at(it, share, down=0.5):
    """Returns the offset of a place of the plot from the middle of its canvas, as Selenium counts."""
    left, top, wide, high = map(float, it.get_attribute("data-plot").split())
    return round(left + share * wide - it.size["width"] / 2), round(top + down * high - it.size["height"] / 2)


def hover(it, share, down=0.5):
    ActionChains(driver, duration=0).move_to_element_with_offset(it, *at(it, share, down)).perform()
    return text(".timeline output")


def drag(it, start, end):
    moves = ActionChains(driver, duration=0).move_to_element_with_offset(it, *at(it, start)).click_and_hold()
    moves.move_to_element_with_offset(it, *at(it, end)).release().perform()


def click(name):
    driver.find_element(By.CSS_SELECTOR, f".timeline button[aria-label='{name}']").click()


def shown():
    return text(".timeline .range")


try:
    driver.execute_cdp_cmd("Network.enable", {})
    driver.execute_cdp_cmd("Network.emulateNetworkConditions",
                           {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0})
    driver.get(page)
    until("five plots", lambda: len(driver.find_elements(By.CSS_SELECTOR, ".timeline canvas[data-plot]")) >= 5)
    picture("whole")

    heat, messages = canvas("Links"), canvas("Messages the")
    load = colours(heat)
    assert len(load) > 20, f"a heat map has many colours: {load}"
    bars = colours(messages)
    blue = driver.execute_script("""
        const it = document.createElement("i");
        document.querySelector(".timeline").append(it);
        it.style.color = "var(--s0)";
        return getComputedStyle(it).color.match(/\\d+/g).join(" ");
    """)
    assert bars.get(blue, 0) > 1000, f"messages are bars of {blue}: {bars}"
    paths = driver.execute_script("""
        const heading = [...document.querySelectorAll("h2")].find((it) => it.textContent === "Paths taken");
        return [...heading.parentElement.querySelectorAll("svg rect")].filter((it) => it.getBBox().height > 5).length;
    """)
    assert paths >= 6, f"least, mean and most of two spines: {paths} bars"

    driver.find_element(By.CSS_SELECTOR, ".timeline input[value=queue]").click()
    until("another heat map", lambda: colours(heat) != load)
    driver.find_element(By.CSS_SELECTOR, ".timeline input[value=load]").click()
    until("the first one again", lambda: colours(heat) == load)

    canvas("Links")
    first = hover(heat, 0.2, 0.1).split("\n")
    assert first[0].startswith("host ") and " to " in first[1] and first[2].startswith("load "), first
    last = hover(heat, 0.8, 0.9).split("\n")
    assert last[0].startswith("leaf ") and last[1] != first[1], last
    canvas("Messages the")
    bar = hover(messages, 0.05, 0.1)
    assert "200 KB" in bar and "µs" in bar, bar
    canvas("Deepest queue")
    marks = json.loads(driver.execute_script("return document.querySelector('.timeline script.data').textContent"))
    [(began, name), *_] = marks["marks"]
    queue = hover(canvas("Deepest queue"), began / marks["edges"][-1])
    assert name in queue, f"an event is named under the pointer: {queue}"

    whole = shown()
    canvas("Links")
    click("Zoom in")
    assert shown() != whole and colours(heat) != load, "a button zooms"
    picture("zoomed")
    click("Show the whole run")
    assert shown() == whole and colours(heat) == load
    drag(canvas("Links"), 0.25, 0.5)
    until("a drag zooms", lambda: shown() != whole)
    quarter = shown()
    ActionChains(driver, duration=0).double_click(messages).perform()
    until("a double click shows the whole run", lambda: shown() == whole)
    heat.send_keys("++")
    until("keys zoom by the same factor", lambda: shown() != whole)
    assert shown() != quarter
    heat.send_keys("0")
    until("a key shows the whole run", lambda: shown() == whole)

    written = driver.get_log("browser")
    assert not written, written
    browser.listen()
    assert browser.requests == [page], f"the page loads nothing else: {browser.requests}"
    say("drawn, zoomed and named, without network")
finally:
    driver.quit()
