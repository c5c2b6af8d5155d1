"""The monitor's page in a headless Chromium: page.py URL FOLDER. Prints each step that it has seen, waits for a line
before each event, and writes screenshots to the folder."""

import json
import sys

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

url, folder = sys.argv[1:]

options = webdriver.ChromeOptions()
for argument in ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                 "--disable-background-networking", "--window-size=1500,1300"]:
    options.add_argument(argument)
options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
driver = webdriver.Chrome(options=options)


def until(what, seen):
    WebDriverWait(driver, 30, poll_frequency=0.1).until(lambda _: seen(), f"not seen in time: {what}")


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
    # Two hosts, and calls between them that have a colour and a latency.
    until("two hosts", lambda: len(texts("#matrix th[scope=row]")) == 2)
    until("calls", lambda: len(driver.find_elements(By.CSS_SELECTOR, "#matrix td[class^=h]")) >= 2)
    until("latency", lambda: len(texts("#heat .row")) >= 2)
    until("talkers", lambda: any("watched_ping" in text for text in texts("#talkers tr")))
    picture("hosts")
    say("shows both hosts")

    driver.execute_script("document.querySelector('#grain input[value=by_program]').click()")
    until("three programs", lambda: len(texts("#matrix th[scope=row]")) == 3)
    assert all("watched_ping" in text for text in texts("#matrix th[scope=row]"))
    until("history", lambda: len(driver.find_elements(By.CSS_SELECTOR, "#heat rect")) > 10)
    picture("programs")
    say("shows programs")

    pid = sys.stdin.readline().strip()
    until("the death", lambda: any("died" in text and pid in text for text in texts("#events tr")))
    picture("death")
    say("shows the death")

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
