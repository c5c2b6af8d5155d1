"""The route controller's page in a headless Chromium: page.py URL FOLDER. Prints each step that it has seen, waits for a
line before each event, and writes screenshots to the folder."""

import json
import sys

from selenium import webdriver
from selenium.webdriver.support.ui import WebDriverWait

url, folder = sys.argv[1:]

options = webdriver.ChromeOptions()
for argument in ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                 "--disable-background-networking", "--window-size=1500,1500"]:
    options.add_argument(argument)
options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
driver = webdriver.Chrome(options=options)


def until(what, seen):
    WebDriverWait(driver, 40, poll_frequency=0.05).until(lambda _: seen(), f"not seen in time: {what}")


def texts(selector):
    # All texts are read at once: the page may be redrawn in between.
    return driver.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map((it) => it.textContent)", selector)


def picture(name):
    for scheme in ["light", "dark"]:
        feature = {"name": "prefers-color-scheme", "value": scheme}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        driver.save_screenshot(f"{folder}/{name}-{scheme}.png")


def say(what):
    print(what, flush=True)


requests = []


def listen():
    for entry in driver.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            requests.append(message["params"]["request"]["url"])


try:
    driver.get(url)
    # Two leaves, two spines, four hosts; eight cables of two directions.
    until("the fabric", lambda: sorted(texts("#fabric text")) == [
        "10.1.0.2", "10.1.1.2", "10.2.0.2", "10.2.1.2", "l0", "l1", "s0", "s1"])
    until("sixteen links", lambda: len(texts("#fabric line")) == 16)
    until("loads", lambda: len(texts("#fabric line:not(.none)")) >= 8)
    until("that it steers", lambda: "steers" in texts("#tiles dd"))
    until("that no job was announced", lambda: texts("#jobs caption") == ["none was announced"])
    say("shows the fabric")

    sys.stdin.readline()
    until("a full link", lambda: len(texts("#fabric line.l4")) >= 1)
    until("an alarm", lambda: len(texts("#fabric line.alarm")) >= 1 and any("marks" in it for it in texts("#events td.words")))
    picture("alarm")
    until("a move and its reason", lambda: any("% full" in it for it in texts("#moves td.words")))
    until("its command", lambda: any("ip route replace 10.2." in it for it in texts("#moves code")))
    until("that it helped", lambda: any("kept" == it for it in texts("#events .kind")))
    until("no alarm", lambda: not texts("#fabric line.alarm"))
    picture("moved")
    say("shows the move")

    listen()
    mistakes = [entry for entry in driver.get_log("browser") if entry["level"] in ("WARNING", "SEVERE")]
    assert not mistakes, mistakes

    sys.stdin.readline()
    until("silence", lambda: "does not answer" in texts("#state")[0])
    say("says that nobody answers")

    listen()
    origin = url.rstrip("/")
    elsewhere = [asked for asked in requests if not asked.startswith(origin)]
    assert requests and not elsewhere, elsewhere
    say("asked nobody else, and had nothing to complain of")
finally:
    driver.quit()
